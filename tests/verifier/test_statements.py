"""A value of a model of transformers is compared with what the same line of the same module computes there."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from partc.config.model import ModelConfig
from partc.config.sources import RandomModel
from partc.frontend.trace.statements import Computation, Statement, parse_computation
from partc.verifier.expectation import Original
from partc.verifier.inputs import StepRequest
from partc.verifier.reference import TransformersReference
from tests.families.tiny import tiny_config

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.hf, pytest.mark.ort]

Array = npt.NDArray[np.float32]
GIVEN = {"input_ids": np.arange(1, 8, dtype=np.int64)[None]}


def _reference(family: str, task: str = "text-generation", **config: Any) -> TransformersReference:
    values = {"model_type": family, **tiny_config(family), **config}
    return TransformersReference(ModelConfig(RandomModel(values, 0), task=task, max_sequence=64))


def _outputs(reference: TransformersReference, *modules: str) -> dict[str, list[Array]]:
    """What modules of the original return, call by call."""
    found: dict[str, list[Array]] = {name: [] for name in modules}

    def keep(name: str) -> Any:
        def hook(module: Any, given: Any, result: Any) -> None:
            first = result[0] if isinstance(result, tuple) else result
            found[name].append(first.detach().numpy().copy())

        return hook

    handles = [reference.network.get_submodule(name).register_forward_hook(keep(name)) for name in modules]
    reference.outputs(GIVEN)
    for handle in handles:
        handle.remove()
    return found


def test_what_a_module_returns() -> None:
    reference = _reference("llama")
    names = [f"model.layers.{number}" for number in range(4)] + ["model.layers.2.mlp.up_proj"]
    right = _outputs(reference, *names)
    found = reference.counterparts(GIVEN, names)
    assert found.keys() == {*names}
    for name in names:
        np.testing.assert_array_equal(found[name], right[name][0])


def test_most_of_what_a_model_computes_has_a_counterpart() -> None:
    reference = _reference("llama")
    made = {name for name, one in reference.graph.values.items() if one.producer and one.dtype == "f32"}
    found = reference.counterparts(GIVEN, made)
    assert len(found) > 0.7 * len(made)


@pytest.mark.parametrize("other", ["model.layers.0", "model.layers.1.add", "model.layers.2"])
def test_another_tensor_of_the_same_sizes_hides_no_error(other: str) -> None:
    """The wrong value is exactly one that the original computes, elsewhere."""
    reference = _reference("llama")
    seen = reference.counterparts(GIVEN, ("model.layers.1", other))
    original, request = Original(reference, "float32"), StepRequest("request", GIVEN, GIVEN)
    place = "model.layers.1", "a", "b"
    right = original.cuts_of_step(request, {place: seen["model.layers.1"]})[place]
    wrong = original.cuts_of_step(request, {place: seen[other]})[place]
    assert right is not None
    assert right[0] == 0
    assert wrong is not None
    assert wrong[0] > 1e-3


def test_each_call_of_a_module_that_is_called_again() -> None:
    """All layers of ALBERT are one module."""
    reference = _reference("albert", "feature-extraction")
    norm = "encoder.albert_layer_groups.0.albert_layers.0.full_layer_layer_norm"
    (right,) = _outputs(reference, norm).values()
    numbers = range(1, len(right) - 1)
    made = [f"{norm}.layernormalization", *(f"{norm}.layernormalization.{number}" for number in numbers)]
    found = reference.counterparts(GIVEN, [*made, "last_hidden_state"])
    for name, array in zip((*made, "last_hidden_state"), right, strict=True):
        np.testing.assert_array_equal(found[name], array)


def test_a_product_before_its_bias() -> None:
    """What devices that share a block add up ends before the bias."""
    reference = _reference("phi")
    name = "model.layers.1.mlp.fc2.matmul"
    (right,) = _outputs(reference, "model.layers.1.mlp.fc2").values()
    bias = reference.network.get_submodule("model.layers.1.mlp.fc2").bias.detach().numpy()
    found = reference.counterparts(GIVEN, (name,))
    np.testing.assert_allclose(found[name], right[0] - bias, atol=1e-6)


def test_an_import_is_kept_for_all_environments() -> None:
    """Another one may have the same libraries in another folder."""
    reference = _reference("llama")
    origins = [one.origin for one in reference.graph.values.values() if one.origin]
    files = {json.loads(text)[1] for text in origins if text.startswith("[")}
    assert "transformers/models/llama/modeling_llama.py" in files
    assert not any(file.startswith("/") for file in files)


def test_the_text_of_a_computation() -> None:
    one = Computation(Statement("a.b", "/code/model.py", 7), "mul", 1, 2, 3, 4, biased=False)
    assert parse_computation(one.text) == one
