#!/usr/bin/env python3
"""Runs reward functions of verl, EasyR1 and TRL as a reward of ares-train, which starts it
(docs/rewards.md, "A Python function"):

    python python_reward.py FILE.py|MODULE NAME [--form auto|verl|easyr1|trl]
                            [--type batch|sequential] [--kwargs JSON]

A line on stdin is a JSON array of questions, its answer on stdout an array of objects, in order: a
score with all that the function told beside it, or {"error": why}. What the function prints goes to
stderr. Only the standard library is used, and what the function imports itself.

Forms are told apart by parameters:

    verl     f(data_source, solution_str, ground_truth, extra_info) -> number or {"score": ..}
             f(data_sources, solution_strs, ground_truths, extra_infos) -> a list of these
    easyr1   f([{"response", "response_length", "ground_truth"}, ..]) -> [{"overall": ..}, ..]
             one dict in, one out, where the module's REWARD_TYPE is "sequential"
    trl      f(prompts, completions, completion_ids, **columns) -> a list of numbers or None

A text that a verl or EasyR1 function returns as "feedback", or a TRL function logs with
log_extra("feedback", texts), is what a teacher reads of the answer (docs/distillation.md).

Each may be `async def`.
"""

import argparse
import asyncio
import importlib
import importlib.util
import inspect
import json
import math
import os
import sys
import traceback
from types import SimpleNamespace


def load(path, name):
    """The function, and the module that it is in."""
    sys.path[0] = os.getcwd()  # in place of this file's folder
    if path.endswith(".py"):
        sys.path.insert(1, os.path.dirname(os.path.abspath(path)))
        spec = importlib.util.spec_from_file_location("custom_reward", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules["custom_reward"] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(path)
    names = [name] if name else ["compute_score", "main"]
    for name in names:
        if hasattr(module, name):
            return getattr(module, name), module
    sys.exit(f"{path} has no function '{' or '.join(names)}'")


def form_of(function):
    parameters = inspect.signature(function).parameters
    names = list(parameters)
    if "completions" in names:
        return "trl"
    if {"data_source", "solution_str", "extra_info", "solution_strs"} & set(names):
        return "verl"
    if names and all(p.kind == p.VAR_KEYWORD for p in parameters.values()):
        return "verl"  # alone calls with keywords only
    required = [
        p
        for p in parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if len(required) == 1:
        return "easyr1"
    sys.exit(
        f"which form a function with the parameters {names} has cannot be seen; "
        "say form: verl, easyr1 or trl"
    )


def plain(value):
    """The value as JSON has it: numbers of numpy and torch, no NaN, text of what is unknown."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def number(value, what):
    if isinstance(value, bool):
        return value
    value = float(value)
    if not math.isfinite(value):
        raise ValueError(f"{what} is {value}")
    return value


def answer_of(result, score_key):
    """The object that ares-train reads."""
    if not isinstance(result, dict):
        score = number(result, "the score")
        return {"score": score, "accuracy": score} if score_key == "score" else {"score": score}
    if score_key not in result:
        raise KeyError(f"the answer has no '{score_key}': {result}")
    answer = {k: v for k, v in result.items() if k != score_key}
    answer = {"score": number(result[score_key], f"'{score_key}'"), **answer}
    for key in ("acc", "accuracy"):  # the latter wins
        if answer.get(key) is not None:
            answer["accuracy"] = number(answer[key], f"'{key}'")
    return answer


def truth_of(item, row):
    """The ground truth as the row has it, where the one that was chosen is its text."""
    chosen, of_model = item.get("ground_truth"), row.get("reward_model")
    of_row = of_model.get("ground_truth") if isinstance(of_model, dict) else None
    if not chosen:
        return of_row
    if isinstance(of_row, str) or of_row is None:
        return chosen
    try:
        return of_row if json.loads(chosen) == of_row else chosen
    except ValueError:
        return chosen


class Verl:
    def __init__(self, function, module, args):
        self.many = "solution_strs" in inspect.signature(function).parameters

    def arguments(self, item):
        row = item.get("row") or {}
        extra = row.get("extra_info") or {}
        if not isinstance(extra, dict):
            raise TypeError(f"extra_info is no map: {extra!r}")
        extra = dict(extra)
        extra.setdefault("num_turns", None)
        extra.setdefault("rollout_reward_scores", {})
        return {
            "data_source": row.get("data_source"),
            "solution_str": item["response"],
            "ground_truth": truth_of(item, row),
            "extra_info": extra,
        }

    def calls(self, items):
        each = [self.arguments(item) for item in items]
        if not self.many:
            return [((), a) for a in each]
        return [((), {f"{key}s": [a[key] for a in each] for key in each[0]})]

    def answers(self, result, items):
        return [answer_of(r, "score") for r in (result if self.many else [result])]


class EasyR1:
    def __init__(self, function, module, args):
        self.many = (args.type or getattr(module, "REWARD_TYPE", "batch")) == "batch"

    def calls(self, items):
        keys = ("response", "response_length", "ground_truth")
        each = [{k: item[k] for k in keys} for item in items]
        return [((each,), {})] if self.many else [((x,), {}) for x in each]

    def answers(self, result, items):
        return [answer_of(r, "overall") for r in (result if self.many else [result])]


class Trl:
    many = True

    def __init__(self, function, module, args):
        parameters = inspect.signature(function).parameters.values()
        self.all = any(p.kind == p.VAR_KEYWORD for p in parameters)
        self.names = {p.name for p in parameters}

    def calls(self, items):
        rows = [item.get("row") or {} for item in items]
        prompts = [row.get("prompt", item.get("prompt")) for row, item in zip(rows, items)]
        chat = [isinstance(p, list) for p in prompts]
        texts = [item["response"] for item in items]
        columns = {k for row in rows for k in row} - {"prompt", "completion", "completion_ids"}
        self.extra = {}
        given = {
            **{k: [row.get(k) for row in rows] for k in sorted(columns)},
            "prompts": prompts,
            "completions": [
                [{"role": "assistant", "content": t}] if c else t for t, c in zip(texts, chat)
            ],
            "completion_ids": [item.get("completion_ids") for item in items],
            "trainer_state": SimpleNamespace(global_step=None),
            "log_extra": lambda name, values: self.extra.update({name: list(values)}),
            "log_metric": lambda name, value: self.extra.update({name: [value] * len(items)}),
        }
        return [((), {k: v for k, v in given.items() if self.all or k in self.names})]

    def answers(self, result, items):
        out = []
        for i, value in enumerate(result):
            none = value is None or (isinstance(value, float) and math.isnan(value))
            told = {k: v[i] for k, v in self.extra.items() if i < len(v)}
            out.append({**told, "score": None if none else number(value, "the score")})
        return out


FORMS = {"verl": Verl, "easyr1": EasyR1, "trl": Trl}


def run(function, kwargs, calls, loop):
    """What each call gives: a result, or the exception that it ended with."""

    async def wait(call):
        return await call

    async def together(calls):
        return await asyncio.gather(*(wait(c) for c in calls), return_exceptions=True)

    if inspect.iscoroutinefunction(function):
        calls = [function(*a, **{**k, **kwargs}) for a, k in calls]
        return loop.run_until_complete(together(calls))
    results = []
    for a, k in calls:
        try:
            results.append(function(*a, **{**k, **kwargs}))
        except Exception as e:
            results.append(e)
    return results


def failed(e):
    return {"error": f"{type(e).__name__}: {e}"}


def judge(function, form, kwargs, items, loop):
    """The answer to each item; an exception costs the response that it is about."""
    try:
        calls = form.calls(items)
    except Exception as e:  # a row that the form cannot show
        if len(items) == 1:
            return [failed(e)]
        return [a for item in items for a in judge(function, form, kwargs, [item], loop)]
    results = run(function, kwargs, calls, loop)
    answers = []
    for i, result in enumerate(results):
        try:
            if isinstance(result, Exception):
                raise result
            of = items if form.many else [items[i]]
            scores = form.answers(result, of)
            if len(scores) != len(of):  # a fault of the function, which one response would hide
                wrong = ValueError(f"{len(scores)} scores for {len(of)} responses")
                answers += [failed(wrong)] * len(of)
                continue
            answers += scores
        except Exception as e:
            traceback.print_exception(type(e), e, e.__traceback__)
            if form.many and len(items) > 1:
                print(
                    f"{len(items)} responses are judged one by one, to find which it is about",
                    file=sys.stderr,
                )
                return [a for item in items for a in judge(function, form, kwargs, [item], loop)]
            answers.append(failed(e))
    return answers


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("name")
    parser.add_argument("--form", default="auto")
    parser.add_argument("--type")
    parser.add_argument("--kwargs", type=json.loads, default={})
    args = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the function prints
    function, module = load(args.path, args.name)
    form = FORMS[form_of(function) if args.form == "auto" else args.form](function, module, args)
    loop = asyncio.new_event_loop()
    for line in sys.stdin.buffer:
        out = judge(function, form, args.kwargs, json.loads(line), loop)
        answers.write(json.dumps(plain(out)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
