from __future__ import annotations

from pathlib import Path

import pytest

from partc.config.model import ModelConfig, Workload, load_model_config
from partc.config.sources import CheckpointFolder, HubModel, OnnxFile, RandomModel
from partc.errors import ConfigError
from partc.ir.quantization import Quantization


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "storyteller").mkdir()
    (tmp_path / "storyteller" / "config.json").write_text("{}")
    (tmp_path / "empty").mkdir()
    (tmp_path / "net.onnx").write_bytes(b"")
    return tmp_path


RANDOM = "model: {config: {model_type: llama}}\n"


def load(folder: Path, text: str) -> ModelConfig:
    path = folder / "model.yaml"
    path.write_text(text)
    return load_model_config(path)


def test_defaults(folder: Path) -> None:
    config = load(folder, "model: ./storyteller\n")
    assert config == ModelConfig(CheckpointFolder(folder / "storyteller"))
    assert (config.task, config.dtype, config.quantize) == ("text-generation", "float32", None)
    assert (config.max_sequence, config.max_batch, config.max_requests) == (512, 1, 4)
    assert config.workload == Workload(32, 96) and config.name == "storyteller"


def test_every_key(folder: Path) -> None:
    text = (
        "model: org/name\ntask: text-classification\ndtype: bfloat16\nquantize: int4\nmax_sequence: 64\n"
        "max_batch: 2\nmax_requests: 1\nworkload: {prompt: 8, generate: 1}\n"
    )
    expected = ModelConfig(
        HubModel("org/name"),
        "text-classification",
        "bfloat16",
        Quantization("int4", "int4", "int4"),
        keep_stored=False,
        max_sequence=64,
        max_source=64,
        max_batch=2,
        max_requests=1,
        workload=Workload(8, 1),
    )
    assert load(folder, text) == expected


@pytest.mark.parametrize(("text", "size"), [("224", (224, 224)), ("[480, 640]", (480, 640))])
def test_sizes_of_pictures_and_sound(folder: Path, text: str, size: tuple[int, int]) -> None:
    config = load(folder, f"model: org/name\ntask: image-classification\nimage_size: {text}\nsamples: 800\n")
    assert (config.image_size, config.samples) == (size, 800)


def test_other_sources(folder: Path) -> None:
    random = load(folder, "model: {config: {model_type: llama, hidden_size: 64}, seed: 3}\n")
    assert random.model == RandomModel({"model_type": "llama", "hidden_size": 64}, 3)
    graph = load(folder, "model: {onnx: net.onnx}\ndims: {n: 4}\n")
    assert graph.model == OnnxFile(folder / "net.onnx") and graph.task == "graph" and graph.dims == {"n": 4}


def test_a_model_without_a_yaml(folder: Path) -> None:
    assert load_model_config(folder / "storyteller").model == CheckpointFolder(folder / "storyteller")
    assert load_model_config(str(folder / "net.onnx")).model == OnnxFile(folder / "net.onnx")
    assert load_model_config("org/name").model == HubModel("org/name")


def test_default_workload_fits_a_short_sequence(folder: Path) -> None:
    assert load(folder, "model: ./storyteller\nmax_sequence: 16\n").workload == Workload(4, 12)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "model: ./storyteller\nmax_sequnce: 4\n",
            r"model.yaml:2: max_sequnce: unknown key.*\n.*did you mean `max_seq",
        ),
        ("task: graph\n", "the key `model` is missing"),
        ("", "the file is empty"),
        ("- model\n", "expected a mapping"),
        ("model: ./absent\n", "no such folder"),
        ("model: ./empty\n", "no config.json"),
        ("model: net.onnx\n", "given as a mapping"),
        ("model: {onnx: absent.onnx}\n", "no such file"),
        ('model: {onnx: "a\\0b"}\n', "no such file"),
        ("model: {onnx: net.onnx}\ntask: text-generation\n", "belong together"),
        ("model: ./storyteller\ntask: graph\n", "belong together"),
        ("model: {onnx: net.onnx}\ndtype: float16\n", "dtype: an ONNX graph has types of its own"),
        ("model: {onnx: net.onnx}\nsamples: 4\n", "an ONNX graph has sizes"),
        ("model: {seed: 3}\n", "the key `config` is missing"),
        ("model: {config: {hidden_size: 3}}\n", "the key `model_type` is missing"),
        ("model: ./storyteller\ntask: text-generatoin\n", "did you mean `text-generation`"),
        ("model: ./storyteller\ndtype: float64\n", "is not a known dtype"),
        ("model: ./storyteller\nquantize: {weights: int4, heads: int8}\n", "unknown key"),
        (
            "model: ./storyteller\ncache: int8\n",
            r"`cache` has no place here(.|\n)*write `quantize: {cache: …}`",
        ),
        *(
            (
                f"model: ./storyteller\nquantize: {{weights: int4, block: {block}}}\n",
                r"a block cannot be.*one of 16, 32",
            )
            for block in ("48", "0", "-32", "512", "'32'", "32.0", "true", "null", "1e400", "[32]")
        ),
        (
            "model: ./storyteller\nquantize: {weights: int8, block: 64}\n",
            "only int4 or int8_blocks have blocks",
        ),
        ("model: ./storyteller\nquantize: {head: q4_0}\n", "is not a known head"),
        *(
            (
                f"model: ./storyteller\nquantize: {value}\n",
                "expected one of a few words, found.*one of: none, int8_blocks, int8, int4",
            )
            for value in ("[int4]", "4", "true", "''", "{weights: 4}", "{weights: int4, head: null}")
        ),
        ("model: ./storyteller\nquantize: int3\n", "is not a known quantize"),
        ("model: ./storyteller\nquantize: INT4\n", "did you mean `int4`"),
        ("model: ./storyteller\nmax_batch: 0\n", "at least 1, found the number 0"),
        ("model: ./storyteller\nmax_batch: 1.5\n", "found the number 1.5"),
        ("model: ./storyteller\nmax_batch: true\n", "found the truth value"),
        ("model: ./storyteller\nworkload: {prompt: 500}\nmax_sequence: 400\n", "longer than max_sequence"),
        ("model: ./storyteller\nworkload: {prompts: 5}\n", "unknown key `prompts`"),
        ("model: ./storyteller\ndims: {n: 4}\n", "belongs to ONNX"),
        *(
            (f"model: ./storyteller\nimage_size: {value}\n", r"expected a whole number or \[height, width\]")
            for value in ("0", "[4]", "[4, 0]", "[1, 2, 3]", "true", "[true, 4]", "large", "{height: 3}")
        ),
        ("model: ./storyteller\nsamples: 0\n", "at least 1"),
        ("model: ./storyteller\ntrust_remote_code: true\n", "never run"),
        ("model: {config: {model_type: x, trust_remote_code: true}}\n", "never run"),
        ("model: ./storyteller\ntokenizer: ./storyteller\n", "made from a config"),
        (f"{RANDOM}tokenizer: ./nowhere\n", "no such folder.*tokenizer.json"),
        (f"{RANDOM}tokenizer: ./empty\n", "no tokenizer.json.*save_pretrained"),
        (f"{RANDOM}tokenizer: 3\n", "expected a text"),
        (f"{RANDOM}ignore_tensors: [a]\n", "belongs to a checkpoint"),
        ("model: ./storyteller\nignore_tensors: a\n", "expected a list of texts"),
        ("model: ./storyteller\nignore_tensors: [1]\n", "expected a list of texts"),
        ("model: ./storyteller\nmodel: ./storyteller\n", "model.yaml:2: the key `model` is given twice"),
        ("model: [1\n", r"model.yaml:\d+:\d+: not valid YAML"),
        ("model: &a ./storyteller\ntask: *a\n", "aliases"),
        ("model: !!python/object:os.system x\n", "tag"),
        ("1: 2\n", "is not a text"),
        ("\x00", "not valid YAML"),
    ],
)
def test_mistakes_name_place_and_remedy(folder: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        load(folder, text)


@pytest.mark.parametrize(
    "name", ["absent.yaml", "absent.onnx", "absent", "empty", "net.txt", "storyteller.yaml"]
)
def test_missing_models(folder: Path, name: str) -> None:
    (folder / "net.txt").write_text("")
    (folder / "storyteller.yaml").mkdir()
    with pytest.raises(ConfigError) as caught:
        load_model_config(folder / name)
    assert caught.value.where and name in caught.value.where


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1e-05", 1e-05),
        ("1E-5", 1e-05),
        ("1e+5", 1e5),
        ("-2.5e3", -2500.0),
        ("1.0e5", 1e5),
        ("1e5", 1e5),
        ("0e0", 0.0),
        ("0.5", 0.5),
        ("12", 12),
        ("Infinity", float("inf")),
        ("-Infinity", float("-inf")),
    ],
)
def test_numbers_are_those_of_json(folder: Path, text: str, number: float) -> None:
    """YAML 1.1 takes the first ones for texts, and a config.json has them."""
    model = load(folder, f"model: {{config: {{model_type: llama, value: {text}, list: [{text}]}}}}\n").model
    assert isinstance(model, RandomModel)
    assert model.config["value"] == number and model.config["list"] == [number]
    assert type(model.config["value"]) is type(number)


@pytest.mark.parametrize("text", ["1e", "e5", "1e5x", "1.e5.2", "01e5", '"1e-05"', "Infinit"])
def test_other_texts_stay_texts(folder: Path, text: str) -> None:
    model = load(folder, f"model: {{config: {{model_type: llama, value: {text}}}}}\n").model
    assert isinstance(model, RandomModel) and model.config["value"] == text.strip('"')


@pytest.mark.parametrize(("text", "base"), [("0256", 8), ("-017", 8), ("1:30", 60), ("1:30.5", 60)])
def test_numbers_to_another_base_are_refused(folder: Path, text: str, base: int) -> None:
    """YAML 1.1 reads 0256 as 174."""
    with pytest.raises(ConfigError, match=f"`{text}` as a number to the base {base}"):
        load(folder, f"model: {{config: {{model_type: llama, value: {text}}}}}\n")
    model = load(folder, f'model: {{config: {{model_type: llama, value: "{text}"}}}}\n').model
    assert isinstance(model, RandomModel) and model.config["value"] == text


def test_text_in_another_encoding_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_bytes(b"# caf\xe9\nmodel: net\n")
    with pytest.raises(ConfigError, match="not UTF-8") as caught:
        load_model_config(tmp_path / "model.yaml")
    assert "save it as UTF-8" in str(caught.value.hint)


def test_a_model_of_a_config_may_have_a_tokenizer(folder: Path) -> None:
    (folder / "words").mkdir()
    (folder / "words" / "tokenizer.json").write_text("{}")
    assert load(folder, f"{RANDOM}tokenizer: words\n").tokenizer == CheckpointFolder(folder / "words")
    assert load(folder, f"{RANDOM}tokenizer: org/name\n").tokenizer == HubModel("org/name")
    assert load(folder, RANDOM).tokenizer is None


def test_an_adapter_is_no_model(folder: Path) -> None:
    (folder / "storyteller" / "adapter_config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"adapter \(LoRA\)(.|\n)*adapters: \["):
        load(folder, "model: ./storyteller\n")
    with pytest.raises(ConfigError, match=r"adapter \(LoRA\)"):
        load_model_config(folder / "storyteller")


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("m.gguf", "GGUF"),
        ("model_index.json", "diffusers"),
        ("params.json", "its maker"),
        ("m.onnx", "onnx: FILE"),
    ],
)
def test_a_folder_of_another_kind_is_named(folder: Path, file: str, message: str) -> None:
    (folder / "other").mkdir()
    (folder / "other" / file).write_text("")
    with pytest.raises(ConfigError, match=f"(?s)no config.json.*{message}"):
        load(folder, "model: ./other\n")


def test_a_pointer_of_git_lfs_is_no_model_yaml(folder: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
    with pytest.raises(ConfigError, match=r"(?s)pointer of git-lfs.*git lfs pull"):
        load(folder, pointer)


def test_binary_file(folder: Path) -> None:
    (folder / "model.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="UTF-8"):
        load_model_config(folder / "model.yaml")


def test_the_batch_of_the_workload(folder: Path) -> None:
    given = load(folder, "model: ./storyteller\nmax_batch: 8\nworkload: {batch: 4}\n")
    assert (given.max_batch, given.workload.batch, given.batches) == (8, 4, ())
    chosen = load(folder, "model: ./storyteller\nmax_batch: auto\n")
    assert chosen.batches == (1, 2, 4, 8, 16, 32, 64)
    # Until the planner has chosen, memory must stand the largest.
    assert (chosen.max_batch, chosen.workload.batch) == (64, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model: ./storyteller\nmax_batch: many\n", "expected a whole number or `auto`"),
        ("model: ./storyteller\nmax_batch: 0\n", "expected a whole number of at least 1"),
        ("model: ./storyteller\nmax_batch: 2\nworkload: {batch: 3}\n", "more than max_batch"),
        ("model: ./storyteller\nmax_batch: auto\nworkload: {batch: 1}\n", "chooses the batch"),
        ("model: {onnx: net.onnx}\nmax_batch: auto\n", "needs a model of transformers"),
        ("model: {onnx: net.onnx}\nworkload: {batch: 2}\n", "is one of its sizes"),
    ],
)
def test_batches_that_cannot_be(folder: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(folder, text)


def test_a_workload_of_guessed_tokens(folder: Path) -> None:
    assert load(folder, "model: ./storyteller\nworkload: {drafted: 0.3}\n").workload == Workload(
        32, 96, 1, 0.3
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model: ./storyteller\nworkload: {drafted: 1.5}\n", "from 0 to 1, found 1.5"),
        ("model: ./storyteller\nworkload: {drafted: -1}\n", "at least zero"),
        ("model: ./storyteller\ndrafts: off\nworkload: {drafted: 0.3}\n", "`drafts: off`"),
        ("model: ./storyteller\nmax_batch: 2\nworkload: {batch: 2, drafted: 0.3}\n", "several sequences"),
        ("model: ./storyteller\nmax_batch: auto\nworkload: {drafted: 0.3}\n", "several sequences"),
        ("model: ./storyteller\ntask: feature-extraction\nworkload: {drafted: 0.3}\n", "makes no tokens"),
        ("model: {onnx: net.onnx}\nworkload: {drafted: 0.3}\n", "makes no tokens"),
    ],
)
def test_tokens_that_cannot_be_guessed(folder: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(folder, text)


@pytest.mark.parametrize("key", ["max_sequence", "max_batch", "max_requests"])
def test_numbers_beyond_everything(folder: Path, key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}: expected a finite number up to .* of about 401 digits"):
        load(folder, f"model: ./storyteller\n{key}: 1{'0' * 400}\n")


def test_where_max_sequence_is_written(folder: Path) -> None:
    written = load(folder, "model: ./storyteller\nmax_sequence: 64\n")
    assert written.sequence_place == f"{folder / 'model.yaml'}:2: max_sequence"
    assert load(folder, "model: ./storyteller\n").sequence_place == f"{folder / 'model.yaml'}: max_sequence"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none", None),
        ("null", None),
        ("int8", Quantization("int8", "int8", "int8")),
        ("int4", Quantization("int4", "int4", "int4", 32)),
        ("{weights: int4, block: 128}", Quantization("int4", "int4", "int4", 128)),
        ("{weights: int4, head: int8, embeddings: none}", Quantization("int4", "int8", "none")),
        ("{head: int8}", Quantization("none", "int8", "none")),
        ("{weights: stored, otherwise: int8}", Quantization("stored", "stored", "stored", otherwise="int8")),
        ("{cache: int8}", Quantization(cache="int8")),
        ("{weights: int4, cache: int8}", Quantization("int4", "int4", "int4", cache="int8")),
        ("{weights: none}", None),
        ("{}", None),
    ],
)
def test_quantize_names_a_precision_for_each_kind_of_weight(
    folder: Path, text: str, expected: Quantization | None
) -> None:
    assert load(folder, f"model: ./storyteller\nquantize: {text}\n").quantize == expected


@pytest.mark.parametrize(
    ("quantization", "text"),
    [
        (Quantization("int4", "int4", "int4"), "int4"),
        (Quantization("int4", "int8", "int4", 64), "int4, head int8, block 64"),
        (Quantization("int8", "int8", "none"), "int8, embeddings none"),
        (Quantization("stored", "stored", "stored", otherwise="int8"), "stored, otherwise int8"),
        (Quantization(cache="int8"), "none, cache int8"),
        (Quantization("int4", "int8", "int4", cache="int8"), "int4, head int8, cache int8"),
    ],
)
def test_a_quantisation_in_words(quantization: Quantization, text: str) -> None:
    assert quantization.text == text
