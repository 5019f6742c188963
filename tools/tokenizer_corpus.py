"""Strings that tokenizers get wrong, made from a seed: the corpus of make_tokenizer_goldens.py."""

import random
import unicodedata

SEED = 20
WORDS = {
    "latin": "the of and to in house water 'tis don't we'll I'VE you'd She's they'RE über naïve "
    "façade coöperate Straße œuvre ångström hôtel señor mañana ça où être São não ação "
    "łódź žluťoučký kůň příliš đường Việt người ğüzel İstanbul ılık ő űr ŵyl þing eð",
    "greek": "και το να είναι για αυτό θα μας Ελλάδα ψυχή ἀρχὴ ἦν ὁ λόγος",
    "cyrillic": "и в не на что быть он с как это по но привет мир ёлка Київ ґанок љубав ҳаёт",
    "hebrew": "שלום עולם אני לא זה את של על בְּרֵאשִׁית",
    "arabic": "السلام عليكم في من على هذا كان مرحبا بالعالم قُرْآن پارسی کتاب",
    "indic": "नमस्ते दुनिया यह है और क्षत्रिय বাংলা আমি "
    "ਪੰਜਾਬੀ ગુજરાતી தமிழ் వందనం ಕನ್ನಡ മലയാളം සිංහල",
    "southeast": "สวัสดีชาวโลก ภาษาไทย ພາສາລາວ မြန်မာစာ ភាសាខ្មែរ ᜃᜊᜌᜓ ꦗꦮ",
    "han": "你好 世界 我们 的 是 在 不 了 機器學習 日本語 漢字 𠮷野家 龍 一二三",
    "kana": "こんにちは せかい カタカナ ﾊﾝｶｸ が が ゔ きゃっと ー 々",
    "hangul": "안녕하세요 세계 한국어 있다 하다 각 한글",
    "others": "ႠႡႢ გამარჯობა բարև ᏣᎳᎩ ተማሪ ⵜⴰⵎⴰⵣⵉⵖⵜ ᠮᠣᠩᠭᠣᠯ བོད་སྐད ߒߞߏ ꆈꌠ 𐌰𐌱 𝔘𝔫𝔦 𝟘𝟙 𒀀𒁀 𓀀𓂀 𞤀𞤁",
}
EMOJI = (
    "😀 😂 🤖 ❤️ ❤ 👍🏽 👩‍💻 👨‍👩‍👧‍👦 🏳️‍🌈 🏴‍☠️ 🇩🇪 🇯🇵 🇺 1️⃣ #️⃣ *⃣ 🧑🏿‍🚀 ☺︎ ☺️ ✈️ ™️ © ® 🫠 🪿 🏴󠁧󠁢󠁥󠁮󠁧󠁿 ♾️ "
    "㊗️ 🅰️ ‼️ 〰️"
).split(" ")
SPACES = [
    " ",
    "  ",
    "    ",
    "\t",
    "\n",
    "\r",
    "\r\n",
    "\n\n",
    "\v",
    "\f",
    "\x1c",
    "\x85",
    "\xa0",
    "\u1680",
    "\u2003",
    "\u2007",
    "\u2028",
    "\u2029",
    "\u202f",
    "\u205f",
    "\u3000",
    "\u180e",
    "\u200b",
    "\ufeff",
    " \n",
    "\n ",
    "\t\n  ",
    "\r\r\n",
]
MARKS = [
    chr(c)
    for c in (
        *range(0x300, 0x370),
        *range(0x591, 0x5BE),
        *range(0x64B, 0x656),
        0x93C,
        0x94D,
        0x9FE,
        0xC3C,
        0xD3B,
        0xEBA,
        0xE48,
        0x1039,
        0x1714,
        0x1715,
        0x302A,
        0x3099,
        0x309A,
        0x7FD,
        0x898,
        0x8CA,
        0x1ABF,
        0x1ACE,
        0x1DF6,
        0x20DD,
        0x11930,
        0x10EAB,
        0x110BA,
        0x16FF0,
        0x1D165,
        0x1E130,
        0x1E2AE,
        0x11F41,
        0x1E08F,
        0x1E4EC,
        0x10EFD,
        0xE0100,
    )
]
BASES = list("aeiounczAEIOUSZq") + list(
    "ąßøıΑαωϒЕеїאשﬡ가각하ᄀ나かハはकड়য়ଡ଼ୋொ\u11935\u11930\u1100\u1161\u11a8"
    "\u1112\u1175\u11c2\u212b\u2126\u2000\u0958\ufb1d\u0344"
    "\U00011935\U00011930\U00011938\U0001d15e\U000110ab"
)
NUMBERS = (
    "0 1 42 3.14159 1,000,000 0x7fff 1e-10 ½ ² Ⅷ ⁵ ① ٣٤٥ ४२ ๑๒ 〇 𝟘𝟙 ㉚ 2024-05-17 12:30:59 "
    "+49 192.168.0.1 100% №5 1️⃣ 𑿀 ௧ ꘠ 𞴁 \U00011de1 \U00011de5\U00011de6 \U00016ff4 x"
    "\U00016ff5y 1\U00016ff61"
).split(" ")
CONTRACTIONS = [
    "'s",
    "'S",
    "'ſ",
    "'t",
    "'T",
    "'re",
    "'rE",
    "'RE",
    "'ve",
    "'Ve",
    "'m",
    "'M",
    "'ll",
    "'lL",
    "'LL",
    "'d",
    "'D",
    "'x",
    "''s",
    "’s",
    "'r",
    "'v",
    "'l",
    "'ſs",
    "'K",
    "'1",
]
SPECIALS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|image_pad|>",
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    "<tool_response>",
    "<repo_name>",
    "<reponame>",
    "<file_sep>",
    "<|file_sep|>",
    "<|fim_prefix|>",
    "<issue_start>",
    "<empty_output>",
    "<gh_stars>",
    "<jupyter_code>",
]
LOOKALIKES = [
    "<|im_end",
    "|im_end|>",
    "<|im_end|",
    "<|IM_END|>",
    "< |im_end|>",
    "<|im_end |>",
    "<<|im_end|>>",
    "<|im_<|im_end|>end|>",
    "<|im_endd|>",
    "＜|im_end|＞",
    "<|im_e\u0301nd|>",
    "<think",
    "<think>>",
    "</thin<think>k>",
    "<|endoftext|",
    "<|",
    "|>",
    "<|extra_0|>",
    "<|im_start|><|im_start|",
    "<tool_call",
    "<file_sep",
    "<repo_name>>",
]
CODE = """def f(x, *args, **kw):\n    return {k: v for k, v in kw.items() if v != x}\n
for (int i = 0; i < n; ++i) {\n\t\tsum += a[i] * b[i];  // dot\n}\n
#include <vector>\r\nint main() { std::vector<int> v{1,2,3}; return v.size(); }\r\n
SELECT name, COUNT(*) FROM users WHERE age >= 18 GROUP BY name ORDER BY 2 DESC;
<div class="a b">&nbsp;<a href='https://example.com/?q=1&r=2#x'>Link</a></div>
{"role": "user", "content": "Hi \\u00e9\\n", "n": [1, -2.5e3, null, true]}
$ grep -rn "foo\\|bar" --include='*.py' . | awk '{print $1}' > out.txt 2>&1
fn main() -> Result<(), Box<dyn Error>> { println!("{:?}", x.iter().map(|v| v + 1)); }
\\frac{a}{b} \\sum_{i=0}^{\\infty} x_i^2 \\leq \\mathbb{R}
    if __name__ == "__main__":\n        main()\n\n\n\nclass A(B): pass
const f = async (a, b) => { await g(`${a}-${b}`); };   \t
| a | b |\n|---|:-:|\n| 1 | 2 |\n\n```cpp\nx;\n```\n""".split("\n\n")
CONTROL = [
    chr(c)
    for c in (
        *range(0x20),
        *range(0x7F, 0xA0),
        0xAD,
        0x200C,
        0x200D,
        0x200E,
        0x202E,
        0x2060,
        0xFEFF,
        0xFFFD,
        0xFFFE,
        0xFFFF,
        0xE000,
        0x10FFFF,
    )
]
PUNCTUATION = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~…—“”«»¿¡·•→≤∑€£ﬁ§¶†‡")


class Corpus:
    def __init__(self):
        self.r = random.Random(SEED)
        self.words = [w for text in WORDS.values() for w in text.split(" ")]
        # Code points of Unicode 14 by category: random strings then reach all kinds alike.
        self.by_category = {}
        for c in range(0x110000):
            if not 0xD800 <= c <= 0xDFFF:
                self.by_category.setdefault(unicodedata.category(chr(c)), []).append(chr(c))

    def mix(self, parts, count, glue=("", " ")):
        return "".join(self.r.choice(parts) + self.r.choice(glue) for _ in range(count))

    def sentence(self):
        words = self.r.choice(list(WORDS.values())).split(" ") + self.words[:30]
        return self.mix(words, self.r.randint(1, 12), (" ", " ", " ", ", ", ". ", "\n", ""))

    def combining(self):
        text = "".join(
            self.r.choice(BASES) + "".join(self.r.choices(MARKS, k=self.r.randint(0, 4)))
            for _ in range(self.r.randint(1, 8))
        )
        return (
            unicodedata.normalize(self.r.choice(["NFC", "NFD", "NFKD"]), text)
            if self.r.random() < 0.4
            else text
        )

    def scattered(self):
        return "".join(
            self.r.choice(self.by_category[self.r.choice(list(self.by_category))])
            for _ in range(self.r.randint(1, 16))
        )

    def block(self):
        first = (
            self.r.choice(
                [self.r.randrange(0x3000), self.r.randrange(0x10000), self.r.randrange(0x20000)]
            )
            & ~31
        )
        text = "".join(
            chr(first + self.r.randrange(48)) + self.r.choice(["", "", " "])
            for _ in range(self.r.randint(2, 16))
        )
        return text.encode("utf-8", "replace").decode()

    def tokens(self):
        parts = SPECIALS + SPECIALS + LOOKALIKES + self.words[:40] + SPACES + EMOJI[:6]
        return self.mix(parts, self.r.randint(1, 8), ("", "", " ", "\n"))

    def apostrophes(self):
        return self.mix(CONTRACTIONS, self.r.randint(1, 5), ("", " ", "a", "Z", "1", "\n", "é"))

    def everything(self):
        parts = self.words + EMOJI + SPACES + NUMBERS + CONTRACTIONS + PUNCTUATION + CONTROL
        return self.mix(parts, self.r.randint(1, 20), ("", "", " "))

    def broken(self):
        """Bytes that are not UTF-8; the reader replaces what is ill-formed."""
        data = bytearray(self.r.choice([self.sentence, self.scattered, self.tokens])().encode())
        for _ in range(self.r.randint(1, 4)):
            at = self.r.randrange(len(data) + 1)
            cut = self.r.randint(0, 2)
            data[at : at + cut] = bytes(
                self.r.choice([self.r.randrange(256), 0xE2, 0xF0, 0x80, 0xED, 0xA0, 0xC0, 0xFF])
                for _ in range(self.r.randint(0, 3))
            )
        return bytes(data)

    def run(self):
        text = self.r.choice(
            [
                "a",
                " ",
                "\n",
                "ab",
                "é",
                "0",
                "-",
                "あ",
                "\t ",
                "😀",
                "=",
                "\r\n",
                "ᄀ",
                "e\u0301",
                "'s",
                ". ",
                "<|im_",
                "的",
                "Aa",
                " a",
                "\u0301",
            ]
        )
        return (
            self.r.choice(["", "x", " "])
            + text * self.r.randint(20, 300)
            + self.r.choice(["", "x", " ", "\n"])
        )

    def code(self):
        lines = [line for text in CODE for line in text.split("\n")]
        return self.mix(lines, self.r.randint(1, 4), ("\n", "\n", "\r\n", "\n\n", "\t", ""))

    def all_strings(self):
        kinds = [
            (self.sentence, 1500),
            (self.combining, 1500),
            (self.scattered, 1600),
            (self.block, 1500),
            (self.tokens, 1500),
            (self.apostrophes, 600),
            (self.everything, 1500),
            (self.broken, 1000),
            (self.run, 300),
            (self.code, 500),
        ]
        out = [
            "",
            *self.words,
            *EMOJI,
            *SPACES,
            *NUMBERS,
            *SPECIALS,
            *LOOKALIKES,
            *CODE,
            *CONTROL,
        ]
        for make, count in kinds:
            out += [make() for _ in range(count)]
        for parts, count in ((SPACES, 500), (NUMBERS, 300), (CONTROL, 200), (EMOJI, 300)):
            out += [
                self.mix(parts, self.r.randint(2, 9), ("", "", " ", "a")) for _ in range(count)
            ]
        out += ["a" * 40000, " " * 40000, "\n" * 20000, "ab" * 20000, "0" * 20000, "é" * 10000]
        return list(dict.fromkeys(s if isinstance(s, bytes) else s.encode() for s in out))
