"""How text is cut before merging: `tokenizer.ggml.pre` -> regular expressions, applied one after another to the pieces that the
previous one left. The expressions define the tokenizers of published models (their tokenizer.json files); they are data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """The splitting rule of one family. ignore_merges: a piece that is a token is not merged; add_bos: default where the file is
    silent; tidies_blanks: decoding a whole text drops the blank before a full stop and the like."""

    regexes: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False
    tidies_blanks: bool = False


_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _SPACES
_QWEN2 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _SPACES
_QWEN35 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + _SPACES
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _SPACES
)
# Kimi-K2 parts Chinese characters from the letters around them.
_K2_UPPER, _K2_LOWER = (rf"[{cased}&&[^\p{{Han}}]]" for cased in (_UPPER[1:-1], _LOWER[1:-1]))
_KIMI_K2 = (
    rf"\p{{Han}}+|[^\r\n\p{{L}}\p{{N}}]?{_K2_UPPER}*{_K2_LOWER}+{_CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_K2_UPPER}+{_K2_LOWER}*{_CONTRACTIONS}?|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|" + _SPACES
)
_SEED = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|" + _SPACES
_YOUTU = (
    r"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+",
    _GPT4O.replace(r"\p{N}{1,3}", r"\p{N}"),
)
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _SPACES
)
# Letters with a case, as code points: editors like to normalise some of them into the letters they look like.
_CASED_LETTERS = (
    "41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376 377 37B-37D 37F 386 388-38A 38C 38E-3A1 3A3-3F5 "
    "3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF 1D00-1D2B 1D6B-1D77 1D79-1D9A 1E00-1F15 "
    "1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 1FC6-1FCC "
    "1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 2126 2128 212A-212D "
    "212F-2134 2139 213C-213F 2145-2149 214E 2183 2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2 2CF3 A640-A66D A680-A69B "
    "A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A 10400-1044F 104B0-104D3 104D8-104FB "
    "10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943"
)


def _character_class(code_points: str) -> str:
    """The regex class of hexadecimal code points and ranges."""
    parts = (part.partition("-") for part in code_points.split())
    return "[" + "".join(rf"\x{{{low}}}" + (rf"-\x{{{high}}}" if high else "") for low, _, high in parts) + "]"


_DEEPSEEK_WORDS = rf"\s?{_character_class(_CASED_LETTERS)}+"
_DEEPSEEK_MARKS = r"\s?[!-/:-~！-／：-～‘-‟、。]+"
# The range that starts at U+0800 spans the blanks of U+2000 to U+3000, which belong to the words after them.
_DEEPSEEK_HAN = r"[[一-龥ࠀ-一가-퟿]&&\S]+"
_DEEPSEEK_LLM = (r"[\r\n]", _DEEPSEEK_WORDS, _DEEPSEEK_MARKS, r"\s+$", _DEEPSEEK_HAN, r"\p{N}+")
_DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_HAN, r"\p{N}")
_DEEPSEEK_V3 = (
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + _SPACES,
)
_DEFAULT = (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")

_LLAMA3_RULE = PreTokenizer((_LLAMA3,), ignore_merges=True, add_bos=True, tidies_blanks=True)
_QWEN2_RULE = PreTokenizer((_QWEN2,))
_GPT2_RULE = PreTokenizer((_GPT2,), tidies_blanks=True)
_STARCODER_RULE = PreTokenizer((r"\p{N}", _GPT2), tidies_blanks=True)
_SMOLLM_RULE = PreTokenizer((r"\p{N}", _GPT2))
_GPT4O_RULE = PreTokenizer((_GPT4O,))
_DEEPSEEK_V3_RULE = PreTokenizer(_DEEPSEEK_V3)

PRETOKENIZERS: dict[str, PreTokenizer] = {
    "default": PreTokenizer(_DEFAULT, tidies_blanks=True),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"), _LLAMA3_RULE),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez", "kormo", "f2llmv2", "hunyuan", "solar-open"), _QWEN2_RULE),
    "qwen35": PreTokenizer((_QWEN35,)),
    "deepseek-llm": PreTokenizer(_DEEPSEEK_LLM),
    "deepseek-coder": PreTokenizer(_DEEPSEEK_CODER),
    **dict.fromkeys(("deepseek-v3", "joyai-llm"), _DEEPSEEK_V3_RULE),
    "kimi-k2": PreTokenizer((_KIMI_K2,)),
    "seed-coder": PreTokenizer((_SEED,)),
    "youtu": PreTokenizer(_YOUTU, ignore_merges=True),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "minimax-m2"), _GPT4O_RULE),
    "tekken": PreTokenizer((_TEKKEN,), ignore_merges=True, add_bos=True),
    "glm4": PreTokenizer((_LLAMA3,), ignore_merges=True, tidies_blanks=True),
    **dict.fromkeys(("chatglm-bpe", "smaug-bpe"), PreTokenizer((_LLAMA3,), tidies_blanks=True)),
    **dict.fromkeys(("smollm", "command-r"), _SMOLLM_RULE),
    **dict.fromkeys(("starcoder", "refact", "codeshell", "exaone", "minerva-7b"), _STARCODER_RULE),
    **dict.fromkeys(("trillion", "granite-docling"), PreTokenizer((_GPT2,))),
    **dict.fromkeys(
        ("gpt-2", "phi-2", "mellum", "jina-es", "jina-de", "gigachat", "mpt", "olmo", "exaone4", "a.x-4.0"), _GPT2_RULE
    ),
}
