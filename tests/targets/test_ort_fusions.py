"""Each fusion of the onnxruntime target against the graph without it; onnxruntime runs both."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from partc.errors import UserError
from partc.ir.graph import Node
from partc.ir.text import parse_module
from targets.ort import OrtTarget
from targets.ort.fusions import FUSIONS, rotary_in_attention
from tests.targets.numpy_attention import Array
from tests.targets.ort_session import Session

pytestmark = pytest.mark.ort
HIDDEN, HEADS, KV, SIZE, MAX = 32, 4, 2, 16, 32
GROUPED = "com.microsoft.GroupQueryAttention"
STEPS = {
    "prompt": ([0], 7),
    "prompts": ([0, 0, 0], 7),
    "chunk": ([6], 5),
    "decode": ([6], 1),
    "decode at unequal positions": ([6, 0, 31], 1),
    "one token as prompt": ([0], 1),
}
"""Name → position of each sequence, rows of the step."""
WEIGHTS: Mapping[str, tuple[int, ...]] = {
    "q": (HIDDEN, HEADS * SIZE), "k": (HIDDEN, KV * SIZE), "v": (HIDDEN, KV * SIZE),
    "qb": (HEADS * SIZE,), "kb": (KV * SIZE,), "vb": (KV * SIZE,),
    "qkv": (HIDDEN, (HEADS + 2 * KV) * SIZE), "norm": (HIDDEN,), "shift": (HIDDEN,),
}  # fmt: skip


def draw(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint with every weight of `WEIGHTS`, and room for graphs."""
    save_file({name: draw(*shape, seed=3) for name, shape in WEIGHTS.items()}, tmp_path / "m.safetensors")
    return tmp_path


def graph(folder: Path, lines: str, weights: str = "") -> str:
    declared = "\n".join(
        f'weight %{name} = f32{list(WEIGHTS[name])} from "m.safetensors"#"{name}"' for name in weights.split()
    )
    return f"""partc-ir 1
model {{"name": "m", "task": "text-generation", "folder": "{folder}", "max_batch": 3, "max_sequence": {MAX}}}
graph part_0 opset 24 {{
input %x: f32[batch,sequence,{HIDDEN}]
input %position: i64[batch]
input %index: i64[sequence]
{declared}
{lines}
}}
"""


def projection(name: str, bias: bool) -> str:
    """Heads of x · weight, with a bias perhaps."""
    heads = HEADS if name == "q" else KV
    flat = f"f32[batch,sequence,{heads * SIZE}]"
    shape = f"const %{name}s = i64[4] [0, 0, {heads}, {SIZE}]\n"
    product = f"%{name}p: {flat} = MatMul(%x, %{name})\n"
    total = f"%{name}f: {flat} = Add(%{name}p, %{name}b)\n" if bias else ""
    rows = (
        f"%{name}r: f32[batch,sequence,{heads},{SIZE}] = Reshape(%{name}{'f' if bias else 'p'}, %{name}s)\n"
    )
    swap = f"%{name}h: f32[batch,{heads},sequence,{SIZE}] = Transpose(%{name}r) {{perm=[0, 2, 1, 3]}}\n"
    return shape + product + total + rows + swap


def tables(width: int, positions: str = "Add(%starts, %counts)") -> str:
    """Cosines and sines of position + index times a frequency a column."""
    frequencies = [round(float(10.0 ** (-i / width)), 6) for i in range(width // 2)]
    half = f"f32[batch,sequence,{width // 2}]"
    return f"""const %one = i64[1] [1]
const %zero = i64[1] [0]
const %two = i64[1] [2]
const %frequency = f32[{width // 2}] {frequencies}
%starts: i64[batch,1] = Unsqueeze(%position, %one)
%counts: i64[1,sequence] = Unsqueeze(%index, %zero)
%at: i64[batch,sequence] = {positions}
%at3: i64[batch,sequence,1] = Unsqueeze(%at, %two)
%where: f32[batch,sequence,1] = Cast(%at3) {{to=1}}
%angle: {half} = Mul(%where, %frequency)
%cos: {half} = Cos(%angle)
%sin: {half} = Sin(%angle)
"""


def attention(*, width: int = 0, interleaved: int = 0, bias: bool = False, attributes: str = "",
              positions: str = "Add(%starts, %counts)") -> str:  # fmt: skip
    """Projections, rotation of the first `width` of a head (0: none), attention over a cache."""
    lines = f"state %ck: f32[batch,{KV},{MAX},{SIZE}]\nstate %cv: f32[batch,{KV},{MAX},{SIZE}]\n"
    lines += "".join(projection(name, bias) for name in "qkv")
    if width:
        lines += tables(width, positions)
        turning = f"{{interleaved={interleaved}, rotary_embedding_dim={0 if width == SIZE else width}}}"
        for name, heads in (("q", HEADS), ("k", KV)):
            rotated = f"RotaryEmbedding(%{name}h, %cos, %sin) {turning}"
            lines += f"%{name}t: f32[batch,{heads},sequence,{SIZE}] = {rotated}\n"
    rule = f"{{scale=0.25, causal=1{attributes}}}"
    q, k = ("%qt", "%kt") if width else ("%qh", "%kh")
    return (
        lines
        + f"""%keys: f32[batch,{KV},{MAX},{SIZE}] = partc.UpdateState(%ck, {k}, %position)
%values: f32[batch,{KV},{MAX},{SIZE}] = partc.UpdateState(%cv, %vh, %position)
const %join = i64[3] [0, 0, {HEADS * SIZE}]
%a: f32[batch,{HEADS},sequence,{SIZE}] = partc.Attention({q}, %keys, %values, %position) {rule}
%rows: f32[batch,sequence,{HEADS},{SIZE}] = Transpose(%a) {{perm=[0, 2, 1, 3]}}
%y: f32[batch,sequence,{HEADS * SIZE}] = Reshape(%rows, %join)
output %y"""
    )


def compare(folder: Path, text: str, name: str, steps: Mapping[str, tuple[list[int], int]]) -> Session:
    """Run every step with all fusions and without that one; the fused session."""
    sessions = [Session(text, folder / str(i), OrtTarget(disable=off)) for i, off in enumerate(((), (name,)))]
    for starts, rows in steps.values():
        results = [_step(session, np.array(starts), rows) for session in sessions]
        for one, other in zip(*results, strict=True):
            np.testing.assert_allclose(one, other, atol=2e-5)
    assert sessions[0].operators() != sessions[1].operators()
    return sessions[0]


def _step(session: Session, position: Array, rows: int) -> list[Array]:
    batch = len(position)
    for state in session.entry.states:
        session.set_state(state.name, draw(batch, KV, MAX, SIZE, seed=7))
    x = draw(batch, rows, HIDDEN, seed=9)
    made = session.run(x=x, position=position, index=np.arange(rows))
    return [*made.values(), *(session.state(state.name) for state in session.entry.states)]


CHUNKS = {"chunk of one sequence": ([6], 5)}


@pytest.mark.parametrize("attributes", ["", ", window=3", ", softcap=2.0", ", window=3, softcap=2.0"])
@pytest.mark.parametrize("width", [0, SIZE])
def test_grouped_attention(folder: Path, width: int, attributes: str) -> None:
    text = graph(folder, attention(width=width, attributes=attributes), "q k v")
    fused = compare(folder, text, "grouped-attention", STEPS)
    assert fused.operators().count(GROUPED) == 1
    plain = Session(text, folder / "plain", OrtTarget(disable=("grouped-attention",)))
    assert {"TensorScatter", "Attention"} <= set(plain.operators())


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("attributes", ["", ", window=3, softcap=2.0"])
def test_rotary_in_attention(folder: Path, interleaved: int, attributes: str) -> None:
    """Rows of a batch have positions of their own, and a chunk starts where the last ended."""
    text = graph(folder, attention(width=SIZE, interleaved=interleaved, attributes=attributes), "q k v")
    fused = compare(folder, text, "rotary-in-attention", STEPS)
    assert "RotaryEmbedding" not in fused.operators()


def test_rotary_of_a_part_of_a_head(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.targets.test_ort_fusions.SIZE", 32)
    monkeypatch.setattr(
        "tests.targets.test_ort_fusions.WEIGHTS", {"q": (32, 128), "k": (32, 64), "v": (32, 64)}
    )
    save_file({n: draw(*shape, seed=3) for n, shape in WEIGHTS.items()}, folder / "m.safetensors")
    fused = compare(folder, graph(folder, attention(width=16), "q k v"), "rotary-in-attention", STEPS)
    assert "RotaryEmbedding" not in fused.operators()


@pytest.mark.parametrize(
    ("width", "positions"),
    [(8, "Add(%starts, %counts)"), (SIZE, "Mul(%starts, %counts)"), (SIZE, "Sub(%starts, %counts)")],
)
def test_a_rotary_that_the_attention_cannot_do_stays(folder: Path, width: int, positions: str) -> None:
    """Too narrow a part of the head, and tables that are no function of position + index."""
    text = graph(folder, attention(width=width, positions=positions), "q k v")
    assert Session(text, folder / "graph").operators().count("RotaryEmbedding") == 2


def test_a_table_that_is_made_of_shared_values_is_read_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Node] = []
    keeps_rows = rotary_in_attention._keeps_rows

    def counted(node: Node) -> bool:
        seen.append(node)
        return keeps_rows(node)

    monkeypatch.setattr(rotary_in_attention, "_keeps_rows", counted)
    text, half = attention(width=SIZE), f"f32[batch,sequence,{SIZE // 2}]"
    doubled = "".join(f"%d{i + 1}: {half} = Add(%d{i}, %d{i})\n" for i in range(12))
    text = text.replace("%angle:", "%d0:").replace("%cos:", f"{doubled}%cos:").replace("(%angle)", "(%d12)")
    assert "RotaryEmbedding" not in Session(graph(folder, text, "q k v"), folder / "graph").operators()
    assert len(seen) == len(set(seen)) > 12


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("width", [0, SIZE])
def test_pack_projections(folder: Path, width: int, bias: bool) -> None:
    text = graph(folder, attention(width=width, bias=bias), "q k v" + " qb kb vb" * bias)
    fused = compare(folder, text, "pack-projections", STEPS)
    assert fused.operators().count("MatMul") == 1
    assert fused.operators().count("Add") <= 1 + 2 * bias


def test_packed_weights_take_no_more_room(folder: Path) -> None:
    text = graph(folder, attention(width=SIZE), "q k v")
    for off in ((), ("pack-projections",)):
        Session(text, folder / str(len(off)), OrtTarget(disable=off))
    sizes = [(folder / n / "weights" / "part_0.safetensors").stat().st_size for n in "01"]
    assert sizes[0] <= sizes[1]


def test_a_weight_that_is_read_elsewhere_is_not_packed(folder: Path) -> None:
    text = graph(
        folder, attention() + f"\n%z: f32[batch,sequence,{KV * SIZE}] = MatMul(%x, %v)\noutput %z", "q k v"
    )
    assert Session(text, folder / "graph").operators().count("MatMul") == 4


def test_a_packed_product_of_the_models_own_is_not_split(folder: Path) -> None:
    """As in GPT-2."""
    whole = (HEADS + 2 * KV) * SIZE
    parts = ", ".join(
        f"%{n}p: f32[batch,sequence,{h * SIZE}]" for n, h in (("q", HEADS), ("k", KV), ("v", KV))
    )
    lines = attention()
    for name in "qkv":
        start = lines.index(f"%{name}p:")
        lines = lines[:start] + lines[lines.index("\n", start) + 1 :]
    split = f"""const %parts = i64[3] [{HEADS * SIZE}, {KV * SIZE}, {KV * SIZE}]
%all: f32[batch,sequence,{whole}] = MatMul(%x, %qkv)
{parts} = Split(%all, %parts) {{axis=-1}}
"""
    fused = compare(folder, graph(folder, split + lines, "qkv"), "pack-projections", STEPS)
    assert "Split" not in fused.operators()


@pytest.mark.parametrize("alpha", [1.0, 1.702])
def test_activation(folder: Path, alpha: float) -> None:
    shape = f"f32[batch,sequence,{HIDDEN}]"
    text = graph(folder, f"%y: {shape} = Swish(%x) {{alpha={alpha}}}\noutput %y")
    fused = compare(folder, text, "activation", STEPS)
    assert fused.operators() == ["com.microsoft.QuickGelu"]


def quantized(name: str, bits: int) -> str:
    """The projection of that name, with weights of so many bits."""
    width, source = WEIGHTS[name][1], f'"m.safetensors"#"{name}" |> transpose(1,0)'
    data, scales = (
        (f"u8[{width}, 1, 16]", f"[{width}, 1]") if bits == 4 else (f"i8[{width}, 32]", f"[{width}]")
    )
    block = 32 if bits == 4 else 0
    product = f"partc.QuantizedMatMul(%x, %{name}d, %{name}c) {{bits={bits}, block={block}}}"
    return f"""weight %{name}d = {data} from {source} |> quantize({bits},{block})
weight %{name}c = f32{scales} from {source} |> scales({bits},{block})
%{name}p: f32[batch,sequence,{width}] = {product}
"""


def test_bias(folder: Path) -> None:
    lines = quantized("q", 4) + "%y: f32[batch,sequence,64] = Add(%qp, %qb)\noutput %y"
    fused = compare(folder, graph(folder, lines, "qb"), "bias", STEPS)
    assert fused.operators() == ["com.microsoft.MatMulNBits"]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_quantized_projections_are_packed(folder: Path, bits: int, bias: bool) -> None:
    lines = attention(width=SIZE, bias=bias)
    for name in "qkv":
        start = lines.index(f"%{name}p:")
        lines = lines[:start] + quantized(name, bits) + lines[lines.index("\n", start) + 1 :]
    fused = compare(folder, graph(folder, lines, "qb kb vb" * bias), "pack-projections", STEPS)
    assert sum("MatMul" in op for op in fused.operators()) == 1


@pytest.mark.parametrize("norm", ["RMSNormalization(%t, %norm)", "LayerNormalization(%t, %norm, %shift)"])
def test_skip_normalization(folder: Path, norm: str) -> None:
    """The CPU's lowering leaves it out, but has the kernels."""
    shape = f"f32[batch,sequence,{HIDDEN}]"
    text = graph(folder, f"""%r: {shape} = Relu(%x)
%t: {shape} = Add(%x, %r)
%n: {shape} = {norm} {{axis=-1, epsilon=0.00001}}
%y: {shape} = Add(%t, %n)
output %y, %t""", "norm shift" if "shift" in norm else "norm")  # fmt: skip
    fused = Session(text, folder / "fused", OrtTarget(provider="cuda"))
    plain = Session(text, folder / "plain")
    for starts, rows in STEPS.values():
        results = [_step(session, np.array(starts), rows) for session in (fused, plain)]
        for one, other in zip(*results, strict=True):
            np.testing.assert_allclose(one, other, atol=2e-5)
    assert any("Skip" in op for op in fused.operators())
    assert not any("Skip" in op for op in plain.operators())


def test_everything_disabled_is_plain_onnx(folder: Path) -> None:
    text = graph(folder, attention(width=SIZE, bias=True), "q k v qb kb vb")
    session = Session(text, folder / "graph", OrtTarget(disable=tuple(FUSIONS)))
    assert not any(op.startswith("com.microsoft.") for op in session.operators())


def test_an_unknown_fusion_is_refused() -> None:
    module = parse_module(graph(Path(), "output %x"))
    with pytest.raises(UserError, match="no fusion 'softmax'") as caught:
        OrtTarget(disable=("softmax",)).lower([module.graph], module.info)
    assert "grouped-attention" in (caught.value.hint or "")


@pytest.mark.parametrize("keeps", [True, False])
def test_onnxruntime_does_not_fuse_what_is_slow(folder: Path, keeps: bool) -> None:
    """Left alone it makes SkipLayerNormalization of a sum and a norm, and BiasGelu of a sum and a Gelu."""
    import onnx
    import onnxruntime

    shape = f"f32[batch,sequence,{HIDDEN}]"
    lines = f"""%t: {shape} = Add(%x, %x)
%n: {shape} = LayerNormalization(%t, %norm, %shift) {{axis=-1, epsilon=0.00001}}
%b: {shape} = Add(%n, %shift)
%y: {shape} = Gelu(%b)
output %y"""
    session = Session(graph(folder, lines, "norm shift"), folder / "graph")
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "graph" / "optimized.onnx")
    for key, value in session.artifact.engine.options.items() if keeps else ():
        options.add_session_config_entry(key, value)
    path = folder / "graph" / session.entry.file
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    optimized = onnx.load(options.optimized_model_filepath, load_external_data=False)
    slow = {"SkipLayerNormalization", "BiasGelu"} & {node.op_type for node in optimized.graph.node}
    assert bool(slow) is not keeps
