"""Small templates whose output by Jinja2 pins the semantics of the engine's expressions."""

CONTEXT = {
    "s": "Hello World", "e": "", "u8": "größe ΑΣ 日本 😀", "nb": "\u00a0x\u00a0\n",
    "n": None, "t": True, "f": False, "i": 7, "neg": -3, "x": 2.5, "one": 1.0, "big": 1e20,
    "tiny": 0.00001, "long": 12345678901234567, "l": [3, 1, 2], "ls": ["b", "A", "a", "C"],
    "nested": [[1, 2], [3]], "empty": [], "d": {"b": 1.0, "a": 1e16, "d": "é</>&'"},
    "m": {"items": "I", "keys": [1], "get": 0, "name": "N", "values": None},
    "users": [{"name": "Zed", "age": 3, "role": "user"}, {"name": "amy", "age": 1, "role": "bot"},
              {"name": "Bob", "age": 2, "role": "user", "x": None}],
    "q": "it's", "qq": "it's \"q\"", "ctl": "a\tb\x01\x7f\u2028\\", "csv": "a,b,,c",
    "html": "<a href='x'>&</a>",
}

VALUES = ["u", "s", "e", "n", "t", "f", "i", "x", "l", "empty", "d", "range(3)", "(1,)", "u8",
          "d.items()", "l|map('string')"]
TESTS = ["defined", "none", "string", "mapping", "iterable", "sequence", "number", "integer",
         "float", "boolean", "true", "false", "callable"]

EXPRESSIONS = """
true|string
none|string
1.0|string
big|string
tiny|string
long|string
1e16
123456789.123
0.1 + 0.2
-0.0
1e-4
1.5e300 * 1e10
d|tojson
d|tojson(indent=2)
[]|tojson(indent=2)
{}|tojson(indent=4)
ctl|tojson
u8|tojson(ensure_ascii=True)
ctl|tojson(ensure_ascii=true)
[1, [2, {'a': []}], {}]|tojson(indent=2)
d|tojson(separators=(',', ':'))
d|tojson(sort_keys=true)
{1: 2, none: 3, true: 4, 1.5: 5}|tojson
{1: 2, 1.0: 3}
(1, 'a')|tojson
u|tojson
l|map('string')|tojson
'a' ~ 1 ~ none ~ true
'a' + 1
1 + 'a'
'a' + u
u + 'a'
u ~ 'a' ~ u
6 / 2
7 // 2
-7 // 2
-7 % 3
7 % -3
7.5 // 2
-7.5 % 2
2 ** 10
2 ** -1
2 ** 3 ** 2
1 / 0
1 // 0
1.0 % 0
-1|abs
-x|abs
- 2 ** 2
not true in [false]
1 + 2 ~ 3
1 ~ 2 + 3
1 < 2 < 3
3 > 2 > 2
1 == 1.0 == true
'a' < 'b'
[1, 2] < [1, 3]
(1, 2) == [1, 2]
1 < 'a'
none < 1
u < 1
u == u2
none == false
u.a
d.zzz
d.zzz.y
d['zzz']
d[0]
n.a
n.a.b
i.real2
s.zzz
m.items is callable
m['items']
m.name
m.get('name')
m.get('zzz')
m.get('zzz', 5)
m.values is defined
m['values']
s|items|list
n|items|list
u|items|list
d|items|list
d.items()
d.keys()
d.values()
d.items()|list|length
nb|trim
nb.strip()
' \\x1c\\x85\\u1680\\u2003 a '|trim
'xxabxx'.strip('x')
'xyabyx'.lstrip('xy')
'xyabyx'.rstrip('xy')
csv.split(',')
csv.split(',')[5]
csv.split(',', 1)
csv.rsplit(',', 1)
' a  b c '.split()
' a  b c '.split(none, 1)
' a  b c '.rsplit(none, 1)
'a'.split('')
'a\\nb\\r\\nc\\x0b\\x1cd'.splitlines()
'a\\nb\\n'.splitlines(true)
[1][5] is defined
[1][-1]
[1][-2] is defined
l[1:]
l[::-1]
l[:-1]
l[-2:]
l[5:]
l[::2]
l[::0]
s[1:3]
s[::-1]
s[-3:]
s[:-1]
s[8:2]
s[::3]
s[-1]
s[99]
u8[1]
u8[-1]
u8[2:5]
u8|length
u8|upper
u8|lower
'ß ŉ ǆ ﬁ'|upper
'ΑΣ ΑΣΑ Σ İ'|lower
'hello wORLD it\\'s'|title
'hello wORLD it\\'s'.title()
'hELLO'|capitalize
'ǆabc'.capitalize()
ls|sort
ls|sort(case_sensitive=true)
ls|sort(reverse=true)
l|sort
[1, 'a']|sort
[2.5, 1, true]|sort
d|dictsort
d|dictsort(reverse=true)
{'B': 1, 'a': 2, 'C': 0}|dictsort
{'B': 1, 'a': 2, 'C': 0}|dictsort(case_sensitive=true)
{'B': 1, 'a': 2, 'C': 0}|dictsort(by='value')
users|sort(attribute='name')|map(attribute='name')|list
users|sort(attribute='role,age')|map(attribute='name')|list
nested|sort(attribute=0)
users|selectattr('role', 'equalto', 'user')|map(attribute='name')|join(', ')
users|selectattr('x', 'defined')|list|length
users|rejectattr('role', 'eq', 'user')|map(attribute='age')|list
users|selectattr('age', '>', 1)|map(attribute='name')|list
users|map(attribute='zzz')|list
users|map(attribute='zzz', default='-')|list
users|map(attribute='name')|map('upper')|list
users|join(';', attribute='name')
[1, 1.0, true, '1']|unique|list
['a', 'A', 'b']|unique|list
[[1]]|unique|list
l|select('odd')|list
l|reject('equalto', 1)|list
[0, 1, '', 'a', none]|select|list
l|select('divisibleby', 3)|list
l|min
l|max
[]|min
ls|min
users|max(attribute='age')
l|sum
users|sum(attribute='age')
l|first
l|last
[]|first
[]|last
u|first
s|first
l|map('string')|last
l|reverse|list
s|reverse
s|list
d|list
u|list
n|list
i|list
l|length
n|length
i|length
u|length
l|map('string')|length
range(5)|length
range(2, 8, 3)|list
range(5, 0, -2)|list
range(3)
l|map('string') is sequence
n|default('d')
''|default('d')
''|default('d', true)
u|default('d')
u|default
u.x|default('d')
d.zzz|default(1 + 1)
'42'|int
'42.7'|int
'x'|int
'x'|int(5)
' 1_000 '|int
'0x1f'|int(0, 16)
'1f'|int(base=16)
none|int
3.9|int
-3.9|int
u|int
'1e3'|float
'x'|float
'x'|float(1.5)
true|float
'inf'|float
'nan'|float
'-1_0.5'|float
'inf'|float|int
3.14159|round(2)
2.5|round
3.5|round
7|round
2.1|round(0, 'ceil')
2.9|round(method='floor')
'a b a'|replace('a', 'x')
'aaa'|replace('a', 'x', 2)
123|replace(2, 'x')
'abc'.replace('', '-')
'abc'|replace('', '-', 2)
'a\\nb\\n\\nc'|indent
'a\\nb\\n\\nc'|indent(2, first=True)
'a\\nb\\n\\nc'|indent(2, blank=true)
'a\\nb'|indent('>>')
''|indent
none|indent
'%s is %d (%r) 100%%'|format('a', 3, 'b')
'%s-%s' % ('a', 1)
'%s' % l
'%d' % 'a'
'%s %s' % ('a',)
'{} {}'.format(1, 'a')
'{1} {0} {name!r}'.format('a', 'b', name='c')
'{{}} {0[0]} {u.name}'.format(l, u=users[0])
'{}'.format()
'{'.format(1)
'a-b'.startswith('a')
'a-b'.startswith(('x', 'a'))
'a-b'.endswith(('x', 'y'))
'abc'.startswith('b', 1)
'abcabc'.find('c')
u8.find('日')
'abcabc'.rfind('c')
'abc'.find('z')
'abc'.index('z')
'aXbX'.count('X')
'aaa'.count('')
'abc'.removeprefix('a').removesuffix('c')
','.join(['a', 'b'])
','.join([1])
'a1'.isalnum()
'12'.isdigit()
''.isdigit()
'ab'.isalpha()
'AB'.isupper()
'ab1'.islower()
' \\t'.isspace()
'AB' is upper
'ab' is lower
[1, 'a', none, true, {'k': 'v'}, (1,), ()]
q
[q]
[qq]
[ctl]
[u8, nb]
['\\x00\\x1f\\x7f\\xad\\u200b']
{'a': [1.0, 1e20]}
[u]
'a' in none
'a' in u
'a' in s
'ell' in s
1 in s
u in s
1 in l
1.0 in l
true in [1]
'a' not in d
'b' in d
l in d
1 is true
true is integer
true is number
1 is integer
1.0 is integer
1 is odd
4 is even
9 is divisibleby 3
9 is divisibleby(4)
1 is sameas 1
none is sameas none
'a' is in 'abc'
1 is eq 1
1 is ne 2
3 is gt 2
3 is not lessthan 2
x is not none and x is not string
u is undefined
'trim' is filter
'odd' is test
1 if true
1 if false
(1 if false) is defined
1 if false else 2 if false else 3
t and 'a' or 'b'
e or n or 'z'
[] or {} or ()
not []
1, 2
(1,)
()
[1] + [2]
[1] + (2,)
(1,) + (2,)
[1, 2] * 2
'ab' * 3
3 * 'ab'
'ab' * -1
[1] - [1]
-'a'
+true
-true
true + true
true / 2
'a' 'b'
'\\u00e9\\x41\\101\\q'
0x1F + 0b11 + 0o17 + 1_000
1.5e3
12345678901234567890 + 1
9007199254740993 * 9007199254740993
dict(a=1, b='x')
dict([('a', 1)])
dict({'a': 1}, b=2)
namespace(a=1).a
namespace(a=1).b is defined
strftime_now('%d %b %Y %H:%M:%S %j %A')
raise_exception('x')
html|safe
html
html|safe + html
html + html|safe
html|safe ~ html
(html|safe)[1:] + html
html|safe|trim + html|safe + '<'
(html|safe).split('<')[1] + '<'
e|safe + '<'
'abc<' + e|safe
[1, [2, [3]]]|string
l|join
l|join(s)
u|join(',')
n|join(',')
'abc'|join('-')
s()
u()
d.get()
d.append(1)
n|map('upper')|list
n|select|list
n|selectattr('a')|list
0|map('upper')|list
1|map('upper')|list
l.index(1)
l.count(2)
l.index(9)
s|trim('Hd')
s|upper|lower|title
users[0]['name']
users.0.name
'a'.b.c
d|first
d|count
{'a': 1, 'a': 2}
{[1]: 2}
{(1, 2): 3}[(1, 2)]
l == [3, 1, 2]
d == {'a': 1e16, 'd': "é</>&'", 'b': 1}
range(3) == range(3)
nested|map('first')|list
nested|map('sum')|list
nested|map('join', '-')|list
""".strip().splitlines()

TEMPLATES = [
    "{% for a in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}"
    "{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.depth }}{{ loop.previtem }}"
    "{{ loop.nextitem }}{{ loop.cycle('x', 'y') }};{% endfor %}",
    "{% for a in l if a > 1 %}{{ loop.index0 }}/{{ loop.length }}{{ loop.last }} {% endfor %}",
    "{% for a in l %}{% for b in s %}{{ loop.depth }}{% endfor %}{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in l %}{{ k }}{% endfor %}",
    "{% for (a, b) in [(1, 2)] %}{{ a }}{{ b }}{% endfor %}",
    "{% for a in empty %}x{% else %}none{% endfor %}",
    "{% for a in u %}x{% else %}none{% endfor %}",
    "{% for a in n %}x{% endfor %}",
    "{% for c in u8 %}[{{ c }}]{% endfor %}",
    "{% for a in range(9) %}{% if a == 2 %}{% continue %}{% endif %}{% if a == 5 %}{% break %}"
    "{% endif %}{{ a }}{% endfor %}",
    "{% set v = 1 %}{% for a in l %}{{ v }}{% set v = a %}{{ v }}{% endfor %}{{ v }}",
    "{% if t %}{% set v = 1 %}{% endif %}{{ v }}",
    "{% if f %}{% set v = 1 %}{% endif %}{{ v }}",
    "{% set ns = namespace(v=0) %}{% for a in l %}{% set ns.v = ns.v + a %}{% endfor %}{{ ns.v }}",
    "{% set d.v = 1 %}",
    "{% set ns = namespace(_v=1) %}",
    "{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}{{ m(1, c=3) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}[{{ m() }}]",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=2) }}",
    "{% macro m() %}{{ v }}{% endmacro %}{% set v = 3 %}{{ m() }}",
    "{% macro m() %}{{ a }}{% endmacro %}{% for a in l %}{{ m() }}{% endfor %}",
    "{% macro f(k) %}{% if k > 0 %}{{ k }}{{ f(k - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% macro m() %}{{ g() }}{% endmacro %}{% macro g() %}G{% endmacro %}{{ m() }}",
    "{% macro m() %}  x  {% endmacro %}{{ m()|trim }}{{ m().strip() }}{{ m()|length }}",
    "{% set v %}a{{ s }}\n{% endset %}[{{ v }}]",
    "{% set v | upper | trim %} a{{ s }}\n{% endset %}[{{ v }}]",
    "{% filter upper %}a{{ s }}{% endfilter %}",
    "{% filter replace('l', 'L') | trim %} {{ s }} {% endfilter %}",
    "{% generation %}{{ s }}{% set v = 1 %}{% endgeneration %}{{ v }}",
    "a\n{% if t %}\nb\n{% endif %}\nc\n",
    "a\n  {% if t %}  \n  b\n  {% endif %}\nc\n\n",
    "  {%- if t -%}  \n b \n {%- endif -%} \n c",
    "a {# c #}\nb\n  {# d %} ' }} #}\nc",
    "a\n  {#- c -#}  \n b",
    "a\n  {{- s -}}  \n b",
    "a\n  {{ s }}\n b",
    "x\u00a0\n{%- if t %} y{% endif -%}\u3000z",
    "  {%+ if t %}x{% endif +%}\n  y",
    "a\r\n{% if t %}\r\nb\r{% endif %}\r\nc\r\n",
    "{{ 'a\r\nb' }}",
    "{{ {'a': {'b': 1}}['a']['b'] }}{{ {'a': {'b': 1}} }}",
    "{{ '}}' }}{{ \"%}\" }}",
    "{% set a = 1 %}{% set a = a + 1 %}{{ a }}",
    "{% set a, b = 1, 2 %}{{ b }}{{ a }}",
    "{% set a, b = l %}{{ b }}",
    "{% set own = [1] %}{% set _ = own.append(2) %}{{ own }}{{ own.pop(0) }}{{ own }}",
    "{% for a in l recursive %}{% endfor %}{{ z }",
    "{% if t %}",
    "{{ 1 + }}",
    "{% unknown %}",
    "{{ s|unknown }}",
    "{{ s is unknown }}",
    "{% set g = l|map('string') %}{{ g|list }}{{ g|list }}{{ 'y' if g }}",
]

SOURCES = (["{{ " + expression + " }}" for expression in EXPRESSIONS]
           + ["{{ " + f"({v}) is {t}" + " }}" for v in VALUES for t in TESTS]
           + TEMPLATES)
