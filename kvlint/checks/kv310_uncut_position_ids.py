"""``prepare_inputs_for_generation`` that cuts the ids and hands on ``position_ids`` of the whole sequence."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from kvlint.analysis.facts import Facts
from kvlint.analysis.library import is_torch_model_class
from kvlint.analysis.scopes import FunctionInfo
from kvlint.behaviour import releases_of
from kvlint.checks.base import Check
from kvlint.checks.library_calls import CACHE_PARAMETERS, OLD_PARAMETERS, is_encoder_family, library_called
from kvlint.findings import Applicability, Edit, Finding, Fix, Origin
from kvlint.nodes import assignment, walk

NAME = "position_ids"
IDS = "input_ids"
OLDER_NAMES = frozenset({*CACHE_PARAMETERS, *OLD_PARAMETERS}) - {"cache"}

WITHOUT_POSITIONS = frozenset(
    {
        *("BartForCausalLM", "BigBirdPegasusForCausalLM", "BlenderbotForCausalLM", "BlenderbotSmallForCausalLM"),
        *("BloomForCausalLM", "CpmAntForCausalLM", "FalconMambaForCausalLM", "MambaForCausalLM", "Mamba2ForCausalLM"),
        *("MarianForCausalLM", "MBartForCausalLM", "MptForCausalLM", "MusicgenForCausalLM", "MvpForCausalLM"),
        *("MusicgenMelodyForCausalLM", "PegasusForCausalLM", "PLBartForCausalLM", "ProphetNetForCausalLM"),
        *("RoFormerForCausalLM", "TrOCRForCausalLM", "WhisperForCausalLM", "xLSTMForCausalLM"),
        *("MoshiForConditionalGeneration", "MusicgenMelodyForConditionalGeneration"),
        *("VibeVoiceAsrForConditionalGeneration", "MossTranscribeDiarizeForConditionalGeneration"),
    }
)
"""Models that generate and whose ``forward`` has no ``position_ids``, in the modeling files of 5.24.0."""


class UncutPositionIds(Check):
    """Reports ``position_ids`` from ``generate`` that reach the model longer than the ids."""

    triggers = ("prepare_inputs_for_generation",)
    also = ((NAME,), (IDS,))

    def findings(self, facts: Facts) -> Iterator[Finding]:
        life = releases_of(facts.timeline, "generate-passes-all-positions")
        for item in library_called(facts):
            wrong = life & item.place.releases
            if item.role != "prepare" or item.elsewhere or not wrong or not model_takes_positions(item.info):
                continue
            taken = taken_from_generate(item.info)
            if taken is None or not stores(item.info.node.body, IDS, cut=True) or cut_anyway(item.info.node.body):
                continue
            key = handed_on(item.info.node)
            if key is None:
                continue
            start, end = facts.span(taken)
            yield self.finding(
                facts,
                taken,
                item.place,
                f"`{NAME}` of `{item.shown}` are those of the whole sequence {{when}}, and only the ids are cut: "
                "the shapes do not fit from the second step on",
                releases=wrong,
                life=life,
                help=f"cut them like the ids: `{NAME}[..., -{IDS}.shape[1] :]`",
                origin=waits_for(facts, item.info),
                fix=cut(facts, item.info.node, key),
                span=(start, start + len(NAME)) if isinstance(taken, ast.arg) else (start, end),
            )


def waits_for(facts: Facts, info: FunctionInfo) -> Origin | None:
    """The parameter of the cache under an older name: the ids are cut once it is filled."""
    parameter = next((arg for arg in info.parameters() if arg.arg in OLDER_NAMES), None)
    if parameter is None:
        return None
    return Origin(facts.span(parameter)[0], f"the ids are cut where `{parameter.arg}` is filled")


def model_takes_positions(info: FunctionInfo) -> bool:
    """``generate`` makes positions only for models whose ``forward`` names them, and for none with an encoder.

    A ``forward`` that is inherited is that of a class of transformers; where none can be seen, nothing is known.
    """
    owner = info.owner
    forward = owner.method("forward") if owner is not None else None
    if owner is None or forward is not None:
        return forward is None or forward.parameter(NAME) is not None
    short = [base.rpartition(".")[2] for base in owner.foreign_bases() if is_torch_model_class(base)]
    models = [name for name in short if not name.endswith(("GenerationMixin", "PreTrainedModel"))]
    return bool(models) and not any(name in WITHOUT_POSITIONS or is_encoder_family(name) for name in models)


def taken_from_generate(info: FunctionInfo) -> ast.AST | None:
    """The parameter, or the look-up in ``**kwargs`` that a variable of the same name gets."""
    parameter = info.parameter(NAME)
    if parameter is not None:
        return parameter
    kwarg = info.node.args.kwarg
    for node in walk(info.node):
        targets, call = assignment(node)
        if isinstance(call, ast.Call) and is_name(targets[0], NAME):
            key = call.args[0] if call.args else None
            if kwarg is not None and isinstance(call.func, ast.Attribute) and is_name(call.func.value, kwarg.arg):
                if call.func.attr in ("get", "pop") and isinstance(key, ast.Constant) and key.value == NAME:
                    return call
    return None


def is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def stores(statements: Sequence[ast.stmt], name: str, cut: bool = False) -> bool:
    """True where a variable is set; with *cut* to a part of itself."""
    for statement in statements:
        for node in walk(statement):
            targets, value = assignment(node)
            if value is not None and any(is_name(target, name) for target in targets):
                if not cut or any(
                    isinstance(part, ast.Subscript) and is_name(part.value, name) for part in walk(value)
                ):
                    return True
    return False


def cut_anyway(statements: Sequence[ast.stmt]) -> bool:
    """True where the positions are cut, or not taken over, also when ``generate`` passes some."""
    for statement in statements:
        if isinstance(statement, ast.If):
            if asks_for_none(statement.test):
                if cut_anyway(statement.orelse):
                    return True
            elif cut_anyway(statement.body) or cut_anyway(statement.orelse):
                return True
        elif stores([statement], NAME, cut=True):
            return True
        elif stores([statement], NAME) and not is_look_up(statement):
            return True
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "prepare_inputs_for_generation"
        for statement in statements
        for node in walk(statement)
    )


def asks_for_none(test: ast.expr) -> bool:
    """``position_ids is None``, alone or with ``and``."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return any(asks_for_none(value) for value in test.values)
    return isinstance(test, ast.Compare) and is_name(test.left, NAME) and isinstance(test.ops[0], ast.Is)


def is_look_up(statement: ast.stmt) -> bool:
    """``position_ids = kwargs.get("position_ids")``."""
    _, value = assignment(statement)
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in ("get", "pop")


def handed_on(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int | None:
    """Index of the first statement that puts the plain variable among the model's inputs."""
    for index, statement in enumerate(function.body):
        for node in walk(statement):
            if isinstance(node, ast.Dict):
                for key, value in zip(node.keys, node.values, strict=True):
                    if isinstance(key, ast.Constant) and key.value == NAME and is_name(value, NAME):
                        return index
            elif (
                isinstance(node, ast.Assign)
                and isinstance(node.targets[0], ast.Subscript)
                and is_name(node.value, NAME)
            ):
                key = node.targets[0].slice
                if isinstance(key, ast.Constant) and key.value == NAME:
                    return index
    return None


def cut(facts: Facts, function: ast.FunctionDef | ast.AsyncFunctionDef, key: int) -> Fix | None:
    """Cuts the positions behind the last statement that sets them or the ids."""
    last = max((i for i, item in enumerate(function.body) if stores([item], NAME) or stores([item], IDS)), default=-1)
    if last < 0 or last >= key:
        return None
    statement = function.body[last]
    first = facts.index.line_start(statement.lineno)
    indent = facts.text[first : facts.span(statement)[0]]
    end = facts.index.line_end(statement.end_lineno or statement.lineno)
    if indent.strip() or facts.text[facts.span(statement)[1] : end].strip().startswith(";"):
        return None
    unit = "\t" if "\t" in indent else "    "
    text = f"\n{indent}if {NAME} is not None:\n{indent}{unit}{NAME} = {NAME}[..., -{IDS}.shape[1] :]"
    return Fix(f"Cut `{NAME}` like the ids", Applicability.UNSAFE, (Edit(end, end, text),))
