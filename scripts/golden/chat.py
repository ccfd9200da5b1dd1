"""Writes tests/golden/chat: what jinja2 renders from chat templates under transformers' settings.

    python scripts/golden/chat.py                 (transformers 5.17, jinja2 3.1)

Renders tests/golden/chat/templates/*.jinja over conversations, and the small templates of
chat_expressions.py. The layout of the files is described in tests/golden/README.md.
"""

import datetime
import json
import pathlib
import warnings

import jinja2
import jinja2.meta
import tokenizers
import transformers
from transformers.utils import chat_template_utils
from chat_expressions import EXPRESSIONS, PLAIN, PLAIN_CONTENT, STATEMENTS, VARIABLES

ROOT = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/chat"
NOW = datetime.datetime(2026, 1, 31, 9, 5, 7)
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


def message(role, content, **more):
    return {"role": role, "content": content, **more}


def call(name, arguments, **more):
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **more}


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": 'Get the weather <now> & "later" — é.\nTwo lines.',
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "The city"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                "days": {"type": ["integer", "null"], "default": 1.0},
            },
            "required": ["city"],
        },
    },
}
SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "",
        "parameters": {
            "type": "object",
            "properties": {
                "filter": {
                    "type": "object",
                    "properties": {
                        "site": {"type": "string"},
                        "Age": {"type": "number", "description": " in days "},
                    },
                    "required": ["site"],
                }
            },
        },
        "return": {"type": "string"},
    },
}
CALLS = [
    message("user", "Weather in Paris and Rome?"),
    message(
        "assistant",
        "",
        tool_calls=[
            call("get_weather", {"city": "Paris", "unit": "celsius"}, id="abcdefgh1"),
            call("get_weather", {"city": "Rome", "days": 2}, id="abcdefgh2"),
        ],
    ),
    message("tool", '{"t": 21.0}', tool_call_id="abcdefgh1", name="get_weather"),
    message("tool", "sunny", tool_call_id="abcdefgh2", name="get_weather"),
    message("assistant", "Paris 21, Rome sunny."),
    message("user", "Thanks"),
]
ONE_CALL = [
    message("system", "Be brief."),
    message("user", "Search é"),
    message(
        "assistant",
        None,
        tool_calls=[
            call("search", {"filter": {"site": "a.b", "Age": 1.5}, "q": 'é "x"'}, id="123456789")
        ],
    ),
    message("tool", "[1, 2]", tool_call_id="123456789"),
    message("assistant", "<think>\nhm\n</think>\n\nDone."),
]
STRING_CALL = [
    message("user", "Go"),
    message("assistant", "Sure.", tool_calls=[call("brave_search", {"query": "cats"}, id="x")]),
]
ARGUMENT_TEXT = [
    message("user", "Go"),
    message("assistant", None, tool_calls=[call("f", '{"a": 1}'), call("g", "{}")]),
    message("tool", "ok"),
    message("tool", "ok2"),
]
TURNS = [
    message("user", "Hello"),
    message("assistant", "Hi there!"),
    message("user", "What is 7 + 5?"),
    message("assistant", "7 + 5 = 12."),
    message("user", "And 2 + 2?"),
]
SYSTEM = [message("system", "You are terse.\n")] + TURNS
THINK = [
    message("user", "1+1?"),
    message("assistant", "<think>\nadd them\n</think>\n\n2"),
    message("user", "2+2?"),
    message("assistant", "<think>again</think>4"),
    message("user", "3+3?"),
]

CONVERSATIONS = {
    "one": dict(messages=TURNS[:1]),
    "one_prompt": dict(messages=TURNS[:1], add_generation_prompt=True),
    "turns": dict(messages=TURNS[:4]),
    "turns_prompt": dict(messages=TURNS, add_generation_prompt=True),
    "system": dict(messages=SYSTEM[:5]),
    "system_prompt": dict(messages=SYSTEM, add_generation_prompt=True),
    "system_only": dict(messages=SYSTEM[:1]),
    "late_system": dict(messages=TURNS[:2] + [message("system", "New rules.")] + TURNS[2:3]),
    "spaces": dict(
        messages=[
            message("user", "  spaced \n\n"),
            message("assistant", "\n\n\tanswer  \n"),
            message("user", "\u00a0\u3000x\u200b "),
        ]
    ),
    "unicode": dict(
        messages=[
            message("user", "žluťoučký кот 日本 😀 e\u0301 \u2028 <b>&amp;</b> 'q' \"d\" \\n"),
            message("assistant", "👨\u200d👩\u200d👧 {{ x }} {% if %}"),
        ],
        add_generation_prompt=True,
    ),
    "empty": dict(
        messages=[message("user", ""), message("assistant", ""), message("user", "")],
        add_generation_prompt=True,
    ),
    "no_messages": dict(messages=[]),
    "no_messages_prompt": dict(messages=[], add_generation_prompt=True),
    "same_role": dict(messages=[message("user", "a"), message("user", "b")]),
    "assistant_first": dict(messages=TURNS[1:3]),
    "strange_role": dict(messages=[message("user", "a"), message("critic", "b")]),
    "think": dict(messages=THINK, add_generation_prompt=True),
    "think_last": dict(messages=THINK[:4]),
    "no_thinking": dict(messages=TURNS[:1], add_generation_prompt=True, enable_thinking=False),
    "thinking": dict(messages=TURNS[:3], add_generation_prompt=True, enable_thinking=True),
    "switch": dict(messages=[message("system", "Do. /no_think ")] + TURNS[:2]),
    "reasoning": dict(
        messages=TURNS[:1] + [message("assistant", "12", reasoning_content="\nseven and five\n")]
    ),
    "tools": dict(messages=SYSTEM[:2], tools=[WEATHER, SEARCH], add_generation_prompt=True),
    "tools_no_system": dict(messages=TURNS, tools=[SEARCH, WEATHER], add_generation_prompt=True),
    "no_tools": dict(messages=TURNS[:1], tools=[]),
    "tools_none": dict(messages=TURNS[:1], tools=None, documents=None),
    "calls": dict(messages=CALLS, tools=[WEATHER]),
    "calls_prompt": dict(messages=CALLS[:4], tools=[WEATHER], add_generation_prompt=True),
    "one_call": dict(messages=ONE_CALL, tools=[SEARCH]),
    "string_call": dict(
        messages=STRING_CALL, tools=[SEARCH], builtin_tools=["brave_search", "code_interpreter"]
    ),
    "argument_text": dict(messages=ARGUMENT_TEXT, add_generation_prompt=True),
    "tools_apart": dict(
        messages=SYSTEM,
        tools=[WEATHER],
        tools_in_user_message=False,
        date_string="1 Jan 2025",
        add_generation_prompt=True,
    ),
    "parts": dict(
        messages=[
            message("system", [{"type": "text", "text": "Look."}]),
            message(
                "user",
                [
                    {"type": "image"},
                    {"type": "text", "text": " What is it? "},
                    {"type": "image", "image": "x.png"},
                ],
            ),
        ],
        add_generation_prompt=True,
        add_vision_id=True,
    ),
    "number": dict(messages=[message("user", 5)]),
    "none": dict(messages=[message("user", None)]),
    "no_content": dict(messages=[{"role": "user"}]),
    "no_role": dict(messages=[{"content": "x"}]),
    "extra": dict(messages=TURNS[:1], bos_token="<BOS>", custom_tools=[WEATHER]),
}

USER = TURNS[0]


def final(content, *before, role="assistant", **more):
    """A conversation whose final message the template has to leave open."""
    return dict(
        messages=list(before or [USER]) + [message(role, content)],
        continue_final_message=True,
        **more,
    )


def text_part(text):
    return {"type": "text", "text": text}


TAG = "CONTINUE_FINAL_MESSAGE_TAG"
CONTINUATIONS = {
    "answer": final("The answer is"),
    "user": final("What is", role="user"),
    "alone": dict(messages=[USER], continue_final_message=True),
    "tool": final("[1, 2", *CALLS[:3], role="tool"),
    "system": dict(messages=SYSTEM[:1], continue_final_message=True),
    "after_system": final("Sure", *SYSTEM[:2]),
    "turns": final("2 + 2 =", *TURNS),
    "tools": final("Let me", USER, tools=[WEATHER]),
    # white space around the content
    "blank_behind": final("The answer is "),
    "blanks_behind": final("So:\n\n  "),
    "blanks_before": final("\n  The answer is"),
    "blanks_around": final(" \t a \n"),
    "unicode_blanks": final("\u3000x\u00a0\u2028"),
    "no_blank": final("x\u200b"),
    "user_blank": final(" What is ", role="user"),
    # content that also occurs elsewhere in the text
    "twice": final("Hello", USER),
    "thrice": final("a", message("user", "a"), message("assistant", "a"), message("user", "a")),
    "header": final("assistant"),
    "empty": final(""),
    "blank": final(" \n"),
    "empty_user": final("", role="user"),
    "unicode": final("žluťoučký кот 日本 😀 e\u0301 \u2028 <b>&amp;</b> 'q' \"d\" \\n 👨\u200d👩"),
    "statement": final("{{ x }} {% if %} {#"),
    "end": final("done<|im_end|>"),
    "tag": final("a " + TAG + " b"),
    # thoughts
    "think": final("<think>\nhm\n</think>\n\nDone"),
    "thinking": final("<think>\nhm, "),
    "thought": final("</think> so "),
    "think_before": final("It is", *THINK[:3]),
    "no_thinking": final("12", enable_thinking=False),
    # other keys
    "reasoning": dict(
        messages=[USER, message("assistant", "", reasoning_content="seven and ")],
        continue_final_message="reasoning_content",
    ),
    "reasoning_content": dict(
        messages=[USER, message("assistant", "12 ", reasoning_content="seven")],
        continue_final_message=True,
    ),
    "other_key": dict(
        messages=[USER, message("assistant", "x", thinking="hm")], continue_final_message="thinking"
    ),
    "role_key": dict(messages=[USER, message("assistant", "x")], continue_final_message="role"),
    "calls": dict(
        messages=[
            STRING_CALL[0],
            message("assistant", "Sure. ", tool_calls=STRING_CALL[1]["tool_calls"]),
        ],
        continue_final_message=True,
    ),
    "calls_only": dict(
        messages=[
            STRING_CALL[0],
            message("assistant", None, tool_calls=STRING_CALL[1]["tool_calls"]),
        ],
        continue_final_message=True,
    ),
    # content in parts, and content that is not text
    "part": final([text_part("The answer ")]),
    "parts": final([text_part("a"), text_part("b\n")], role="user"),
    "user_parts": dict(
        messages=[message("user", [text_part("Look"), text_part("b ")])],
        continue_final_message=True,
    ),
    "image_last": dict(
        messages=[message("user", [text_part("Look "), {"type": "image"}])],
        continue_final_message=True,
    ),
    "no_text": final([{"type": "image"}], role="user"),
    "no_parts": final([]),
    "text_parts": final(["a text"]),
    "plain_parts": final([text_part("a"), "b"]),
    "number_part": final([text_part(5)]),
    "number": final(5),
    "object": final({"text": "a"}),
    "null": final(None),
    "no_content": dict(messages=[USER, {"role": "assistant"}], continue_final_message=True),
    "no_messages": dict(messages=[], continue_final_message=True),
    "string_message": dict(messages=[USER, "x"], continue_final_message=True),
    # together with add_generation_prompt, and switched off
    "and_prompt": final("x", add_generation_prompt=True),
    "no_prompt": final("x", add_generation_prompt=False),
    "null_prompt": final("x", add_generation_prompt=None),
    "off": dict(messages=TURNS[:2], continue_final_message=False),
    "off_prompt": dict(messages=TURNS[:1], continue_final_message=None, add_generation_prompt=True),
    "empty_key": dict(messages=TURNS[:2], continue_final_message=""),
}


def outcome(render):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            text, spans = render()
        except jinja2.exceptions.TemplateSyntaxError as e:
            return {"error": True, "kind": "syntax", "message": str(e), "line": e.lineno}
        except Exception as e:
            return {"error": True, "kind": "run", "message": "%s: %s" % (type(e).__name__, e)}
    return {"text": text} | ({"spans": spans} if spans is not None else {})


def chat(source, context):
    """Renders as apply_chat_template does: the special tokens are variables too."""
    given = SPECIAL | context
    tracked = "generation" in source.replace("add_generation_prompt", "")

    def render():
        text, spans = chat_template_utils.render_jinja_template(
            [given.pop("messages")],
            chat_template=source,
            return_assistant_tokens_mask=tracked,
            **given,
        )
        return text[0], [list(s) for s in spans[0]] if tracked else None

    return outcome(render)


def continued(tokenizer, source, context):
    """Renders with apply_chat_template itself.

    It refuses continue_final_message together with add_generation_prompt.
    """

    def render():
        given = json.loads(json.dumps(context))
        return tokenizer.apply_chat_template(
            given.pop("messages"), chat_template=source, tokenize=False, **given
        ), None

    result = outcome(render)
    if "error" in result:  # some error messages contain the whole text
        result["message"] = result["message"].split("\n")[0][:160]
    return result


def small(source):
    try:
        known = jinja2.meta.find_undeclared_variables(
            jinja2.Environment(extensions=["jinja2.ext.loopcontrols"]).parse(
                source.replace("generation", "filter upper").replace("endfilter upper", "endfilter")
            )
        )
    except jinja2.exceptions.TemplateError:
        known = set(VARIABLES)
    context = {k: v for k, v in VARIABLES.items() if k in known}
    if "generation" in source:

        def render():
            blocks, spans = [], []
            template = chat_template_utils._compile_jinja_template(source)
            with template.environment.activate_tracker(blocks, spans):
                for block in template.generate(**json.loads(json.dumps(context))):
                    blocks.append(block)
            return "".join(blocks), [list(s) for s in spans]
    else:

        def render():
            return chat_template_utils._compile_jinja_template(source).render(
                **json.loads(json.dumps(context))
            ), None

    return {"template": source, "context": context} | outcome(render)


def lines(cases):
    return "[\n  " + ",\n  ".join(json.dumps(c) for c in cases) + "\n ]"


def write(name, cases):
    metadata = {
        "command": "python scripts/golden/chat.py",
        "transformers": transformers.__version__,
        "jinja2": jinja2.__version__,
    }
    text = json.dumps(
        {"metadata": metadata, "now": NOW.isoformat(), "cases": "@"}, indent=1
    ).replace('"@"', lines(cases), 1)
    (ROOT / name).write_text(text + "\n")
    errors = sum("error" in c for c in cases)
    print(
        "%-17s %4d cases, %3d of them errors, %d kB" % (name, len(cases), errors, len(text) // 1024)
    )


def main():
    chat_template_utils.datetime = Clock
    cases = []
    for path in sorted((ROOT / "templates").glob("*.jinja")):
        source = path.read_bytes().decode()
        for name, context in CONVERSATIONS.items():
            cases.append(
                {"name": path.stem + "/" + name, "file": path.name, "context": SPECIAL | context}
                | chat(source, json.loads(json.dumps(context)))
            )
    write("templates.json", cases)

    cases = []
    empty = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=empty, **SPECIAL)
    for path in sorted((ROOT / "templates").glob("*.jinja")):
        source = path.read_bytes().decode()
        for name, context in CONTINUATIONS.items():
            case = {"name": path.stem + "/" + name, "file": path.name, "context": SPECIAL | context}
            cases.append(case | continued(tokenizer, source, context))
    write("continue.json", cases)

    sources = [
        line if "{{" in line and "}}" in line else "{{ %s }}" % line
        for line in EXPRESSIONS.strip("\n").split("\n")
    ]
    seen = set()
    sources = [s for s in sources + STATEMENTS if not (s in seen or seen.add(s))]
    cases = []
    for source in sources:
        first, again = small(source), small(source)
        if first == again and " at 0x" not in json.dumps(first):  # neither random nor an address
            cases.append(first)
        else:
            print("left out:", source)
    write("expressions.json", cases)

    cases = []
    for source in PLAIN:
        for content in PLAIN_CONTENT:
            cases.append(
                {"template": source, "context": {"content": content}}
                | outcome(lambda: (jinja2.Template(source).render(content=content), None))
            )
    write("plain.json", cases)


main()
