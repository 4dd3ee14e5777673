"""`layerdeck tokenize`, `detokenize` and `render`: text to token ids, back, and conversations to prompts."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.cli.model import add_model_argument, add_override_option, read_model
from engine.cli.options import add_json_option
from engine.cli.output import read_json_file, read_text_file, write_json, write_text
from engine.errors import EngineError, InvalidRequest

if TYPE_CHECKING:
    from engine.tokenizer.build import Tokenizer


def load_tokenizer(args: argparse.Namespace) -> Tokenizer:
    """The tokenizer of the model that the arguments name. Raises: GgufError, UnsupportedModel, InvalidRequest."""
    # Imported here because a rendering from a template file needs no tokenizer.
    from engine.tokenizer.build import Tokenizer
    from engine.tokenizer.vocab import Vocab

    return Tokenizer(Vocab.from_gguf(read_model(args)))


def add_tokenize_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `tokenize`."""
    add_model_argument(parser)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--text", help="the text")
    source.add_argument("--text-file", type=Path, metavar="F", help="a UTF-8 file with the text")
    source.add_argument("--texts-file", type=Path, metavar="F.json", help="a JSON list of texts")
    parser.add_argument("--no-special", action="store_true", help="texts of control tokens stay text")
    parser.add_argument("--no-bos", action="store_true", help="no token for the beginning of the text")
    add_json_option(parser)


def run_tokenize(args: argparse.Namespace) -> int:
    """Prints token ids; with a list of texts a list of lists."""
    many = args.texts_file is not None
    if many:
        texts = read_json_file(args.texts_file)
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise InvalidRequest(f"{args.texts_file}: the file is not a JSON list of strings; correct the file")
    else:
        texts = [args.text if args.text is not None else read_text_file(args.text_file)]
    tokenizer = load_tokenizer(args)
    results = [tokenizer.encode(text, special=not args.no_special, bos=not args.no_bos) for text in texts]
    if args.json:
        write_json({"ids": results if many else results[0]})
    else:
        write_text("".join(" ".join(map(str, ids)) + "\n" for ids in results))
    return 0


def add_detokenize_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `detokenize`."""
    add_model_argument(parser)
    parser.add_argument("--ids-file", type=Path, metavar="F", required=True, help="a JSON list of ids, or a list of lists")
    add_json_option(parser)


def run_detokenize(args: argparse.Namespace) -> int:
    """Prints text and, with --json, its bytes; control tokens are kept."""
    lists, many = read_ids(args.ids_file)
    tokenizer = load_tokenizer(args)
    texts = [tokenizer.decode(ids) for ids in lists]
    shown = [text.decode(errors="replace") for text in texts]
    hexes = [text.hex() for text in texts]
    if args.json:
        write_json({"text": shown if many else shown[0], "hex": hexes if many else hexes[0]})
    else:
        write_text("".join(text + "\n" for text in shown))
    return 0


def read_ids(path: Path) -> tuple[list[list[int]], bool]:
    """The lists of token ids in a JSON file, which holds a list of ids, a list of lists, or an object with `ids`; and whether it
    holds many lists.

    Raises: InvalidRequest for anything else.
    """
    content = read_json_file(path)
    if isinstance(content, dict):
        content = content.get("ids")
    if isinstance(content, list):
        many = bool(content) and all(isinstance(item, list) for item in content)
        lists = content if many else [content]
        if all(isinstance(i, int) and not isinstance(i, bool) for ids in lists for i in ids):
            return lists, many
    raise InvalidRequest(f"{path}: the file is not a JSON list of token ids, nor a list of such lists; correct the file")


def add_render_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `render`."""
    parser.add_argument("model", type=Path, nargs="?", help="a GGUF file whose template is used")
    add_override_option(parser)
    parser.add_argument("--template", type=Path, metavar="F", help="a template file, used in place of the model's")
    parser.add_argument("--template-name", metavar="NAME", help="one of the model's templates that have a name")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--messages", type=Path, metavar="F", help="a JSON list of messages")
    source.add_argument("--cases", type=Path, metavar="F.json", help="a JSON list of cases")
    parser.add_argument("--tools", type=Path, metavar="F", help="a JSON list of tools")
    add_var_option(parser)
    parser.add_argument("--no-generation-prompt", action="store_true", help="do not open the answer")
    add_json_option(parser)


def run_render(args: argparse.Namespace) -> int:
    """Prints the prompt of one conversation, or the results of many cases."""
    # Imported here so that tokenizing does not pay for the helper process.
    from engine.tokenizer.chat_template import CHATML, RenderRequest, TemplateHelper

    template, special = _template(args)
    with TemplateHelper() as helper:
        if args.cases is None:
            request = RenderRequest(
                messages=_list_of_objects(args.messages),
                tools=None if args.tools is None else _list_of_objects(args.tools),
                add_generation_prompt=not args.no_generation_prompt,
                variables=special | template_vars(args),
            )
            text = helper.render(CHATML if template is None else template, request).text
            if args.json:
                write_json({"text": text})
            else:
                write_text(text)
            return 0
        results: list[dict[str, str]] = []
        for case in _list_of_objects(args.cases):
            try:
                request = RenderRequest.from_case(special | case)
                results.append({"text": helper.render(CHATML if template is None else template, request).text})
            except EngineError as error:
                results.append({"error": str(error)})
        if args.json:
            write_json({"results": results})
        else:
            write_text("".join(result.get("text", result.get("error", "")) + "\n" for result in results))
        return 0


def _template(args: argparse.Namespace) -> tuple[str | None, dict[str, Any]]:
    """The template to use (None: plain ChatML) and the texts of the model's special tokens."""
    template, special = None, dict[str, Any]()
    if args.model is None and args.template is None:
        raise InvalidRequest("render needs a model or a template; give MODEL or --template F")
    if args.model is not None:
        from engine.tokenizer.chat_template import special_variables, template_of
        from engine.tokenizer.template_rules import templates_of
        from engine.tokenizer.vocab import Vocab

        file = read_model(args)
        template, special = template_of(file, tools=args.tools is not None), special_variables(Vocab.from_gguf(file))
        if args.template_name is not None:
            templates = templates_of(file)
            if args.template_name not in templates:
                names = ", ".join(name for name in templates if name) or "none"
                raise InvalidRequest(f"{args.model}: there is no template named {args.template_name}; named ones: {names}")
            template = templates[args.template_name]
    if args.template is not None:
        template = read_text_file(args.template)
    return template, special


def _list_of_objects(path: Path) -> list[dict[str, Any]]:
    content = read_json_file(path)
    if not isinstance(content, list) or not all(isinstance(item, dict) for item in content):
        raise InvalidRequest(f"{path}: the file is not a JSON list of objects; correct the file")
    return content


def add_var_option(parser: argparse.ArgumentParser) -> None:
    """Adds the variables of chat templates."""
    parser.add_argument(
        "--var",
        action="append",
        default=[],
        metavar="NAME=JSON",
        help="a variable of the chat template, e.g. enable_thinking=false",
    )


def template_vars(args: argparse.Namespace) -> dict[str, Any]:
    """The variables that `add_var_option` has parsed. Raises: InvalidRequest for one of another form."""
    return dict(map(_variable, args.var))


def _variable(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier() or name.startswith("_"):
        raise InvalidRequest(f"--var {text}: not of the form NAME=JSON; write for example --var enable_thinking=false")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError as error:
        raise InvalidRequest(f"--var {text}: the value is not JSON ({error.msg}); put strings into double quotes") from error
