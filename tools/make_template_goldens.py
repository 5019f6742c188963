#!/usr/bin/env python3
"""Writes tests/golden/templates/: what Jinja2 renders for the published chat templates.

  python3 tools/make_template_goldens.py TEMPLATE_DIR OUTPUT_DIR

Needs jinja2 3.1.6. The environment is the one Hugging Face compiles chat templates with. The
templates are not copied: a case holds the length, FNV-1a hash and first characters of the output,
or "error". expressions.json holds small templates with their whole output.
"""

import copy
import datetime
import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = datetime.datetime(2026, 3, 14, 15, 9, 26)
PREFIX_LENGTH = 120


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_render")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def check_name(name):
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(name)


class Namespace(jinja2.utils.Namespace):
    """As Hugging Face defines it: no names that reach into Python."""

    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attributes = dict(*args, **kwargs)
        for name in attributes:
            check_name(name)
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name, value):
        check_name(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)


def make_environment(mutable):
    kind = (jinja2.sandbox.SandboxedEnvironment if mutable
            else jinja2.sandbox.ImmutableSandboxedEnvironment)
    environment = kind(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.filters["from_json"] = json.loads
    environment.globals["namespace"] = Namespace
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = NOW.strftime
    return environment


def fnv1a64(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def tool(name, properties, required):
    parameters = {"type": "object", "properties": properties, "required": required}
    return {
        "type": "function",
        "function": {"name": name, "description": f"Calls {name}.", "parameters": parameters},
    }


TOOLS = [
    tool("get_weather", {
        "city": {"type": "string", "description": "City <name> & country"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
    }, ["city"]),
    tool("store", {
        "items": {"type": "array", "items": {"type": "integer"}, "description": "Zahlen: é"},
        "keys": {"type": "object", "properties": {"a": {"type": ["string", "null"]}}},
        "flag": {"type": "boolean", "description": "On or off"},
    }, []),
]


def call(name, arguments, identifier="call_0001"):
    return {
        "id": identifier, "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def result(content, identifier="call_0001", name="get_weather"):
    return {"role": "tool", "tool_call_id": identifier, "name": name, "content": content}


SYSTEM = {"role": "system", "content": "You are terse."}
WEATHER = call("get_weather", {"city": "Zürich", "unit": "celsius"}, "abcdefghi")
STORE = call("store", {
    "items": [1, 2.5, None], "keys": {"a": "x", "b": True}, "flag": False, "n": 1e-07,
    "text": "l\n2",
}, "jklmnopqr")


def conversations():
    hello = [user("Hello")]
    turns = [SYSTEM, user(" One? "), assistant("Two."), user("Three?"), assistant("4\n"),
             user("5?")]
    tool_turn = [user("Weather?"), assistant("", tool_calls=[WEATHER])]
    answered = tool_turn + [result('{"temperature": 21.5}', "abcdefghi")]
    parallel = [
        SYSTEM, user("Do both"), assistant("I will.", tool_calls=[WEATHER, STORE]),
        result("21", "abcdefghi"), result("ok", "jklmnopqr", "store"),
    ]
    thought = [
        user("Why?"), assistant("Because.", reasoning_content="Let me think.\n"), user("And?"),
        assistant("So.", reasoning_content="Again."),
    ]
    inline = [user("Why?"), assistant("<think>\nHm\n</think>\n\nBecause."), user("And?")]
    parts = [user([{"type": "text", "text": "part one "},
                   {"type": "text", "text": "part two"}])]
    odd = [user("\u00a0NBSP \u3000 ß ΑΣ 😀 </think> \u2028end\u00a0\n"), assistant("“q”\t"),
           user("x")]
    special = [user("<|im_end|>\n<|im_start|>system\n[INST] <s> </s> <|eot_id|>"),
               assistant("<tool_call>"), user("{{ x }} {% if %}")]
    string_arguments = [
        user("Weather?"), assistant(None, tool_calls=[call("get_weather", '{"city": "Bern"}')]),
        result("1"),
    ]
    prompt = {"add_generation_prompt": True}
    return {
        "plain": {"messages": hello, **prompt},
        "plain_no_prompt": {"messages": hello},
        "system": {"messages": [SYSTEM, user("Hi")], **prompt},
        "turns": {"messages": turns, **prompt},
        "tools": {"messages": [SYSTEM, user("Hi")], "tools": TOOLS, **prompt},
        "tools_no_system": {"messages": hello, "tools": TOOLS, **prompt},
        "tool_call": {"messages": tool_turn, "tools": TOOLS},
        "tool_result": {"messages": answered, "tools": TOOLS, **prompt},
        "tool_answer": {"messages": answered + [assistant("21.5 degrees."), user("Thanks")],
                        "tools": TOOLS, **prompt},
        "parallel": {"messages": parallel, "tools": TOOLS, **prompt},
        "thinking_on": {"messages": thought, "enable_thinking": True, "thinking": True, **prompt},
        "thinking_off": {"messages": thought[:3], "enable_thinking": False, "thinking": False,
                         **prompt},
        "thinking_kept": {"messages": thought + [user("?")], "preserve_thinking": True,
                          "reasoning_effort": "high", **prompt},
        "thinking_inline": {"messages": inline, **prompt},
        "empty": {"messages": [SYSTEM, user(""), assistant(""), user("x")], **prompt},
        "null": {"messages": [user("a"), assistant(None), user("b")], "tools": None, **prompt},
        "parts": {"messages": parts, **prompt},
        "odd_text": {"messages": odd, **prompt},
        "special": {"messages": special, **prompt},
        "string_arguments": {"messages": string_arguments, "tools": TOOLS, **prompt},
        "no_messages": {"messages": [], **prompt},
        "late_system": {"messages": [user("a"), SYSTEM, user("b")], **prompt},
        "developer": {"messages": [{"role": "developer", "content": "d"}, user("b")], **prompt},
    }


def render(source, context):
    """The output, or None. Kimi K2 changes lists of its own, which the engine allows too."""
    for mutable in (False, True):
        environment = make_environment(mutable)
        try:
            values = {"bos_token": "<s>", "eos_token": "</s>", **copy.deepcopy(context)}
            return environment.from_string(source).render(**values)
        except jinja2.exceptions.SecurityError:
            continue
        except Exception:
            return None
    return None


def template_cases(directory):
    cases = {}
    for path in sorted(directory.glob("*.jinja")):
        source = path.read_bytes().decode()
        outputs = {}
        for name, context in conversations().items():
            text = render(source, context)
            if text is None:
                outputs[name] = "error"
                continue
            data = text.encode()
            outputs[name] = [len(data), fnv1a64(data), text[:PREFIX_LENGTH]]
        cases[path.stem] = outputs
    return cases


def main():
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
    from template_expressions import CONTEXT, SOURCES

    templates, output = map(pathlib.Path, sys.argv[1:3])
    output.mkdir(parents=True, exist_ok=True)
    header = {"script": "tools/make_template_goldens.py", "jinja2": jinja2.__version__}
    golden = {**header, "conversations": conversations(), "templates": template_cases(templates)}
    expressions = [[source, render(source, CONTEXT)] for source in SOURCES]
    cases = {**header, "context": CONTEXT, "cases": expressions}
    for name, value in (("templates", golden), ("expressions", cases)):
        text = json.dumps(value, ensure_ascii=False, indent=1)
        (output / f"{name}.json").write_text(text + "\n")
    errors = sum(o == "error" for t in golden["templates"].values() for o in t.values())
    print(f"{len(golden['templates'])} templates, {errors} errors, {len(expressions)} expressions")


if __name__ == "__main__":
    main()
