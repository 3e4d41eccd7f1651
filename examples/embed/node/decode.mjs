// node decode.mjs FOLDER IDS [COUNT]: the likeliest COUNT tokens (16) after the prompt IDS, "1,2,3", by the bundle of one
// device in FOLDER (target ort); no partc, no Python. The bundle holds a whole model: one graph, from token ids to logits.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import ort from "onnxruntime-node";

const BYTES = { float32: Float32Array, int64: BigInt64Array };

/** A tensor of zeros, or of the given numbers. */
function tensor(dtype, shape, values) {
  const size = shape.reduce((product, dim) => product * dim, 1);
  const data = new BYTES[dtype](size);
  values?.forEach((value, place) => (data[place] = dtype === "int64" ? BigInt(value) : value));
  return new ort.Tensor(dtype, data, shape);
}

/** A model of one graph, with the states of one request of one sequence. */
class Model {
  static async load(folder) {
    const model = new Model();
    const [build, placement] = ["build.json", "placement.json"].map((file) =>
      JSON.parse(readFileSync(join(folder, file), "utf8")),
    );
    if (build.target !== "ort" || placement.ring.length !== 1) {
      throw new Error(`not the bundle of a whole model, by the target ort: ${folder}`);
    }
    model.limits = build.model;
    [model.part] = build.submodules;
    model.session = await ort.InferenceSession.create(join(folder, model.part.file));
    model.states = {};
    model.position = 0;
    for (const state of model.part.states) {
      const shape = state.shape.map((dim) => (dim === "batch" ? 1 : dim));
      model.states[state.name] = tensor(state.dtype, shape);
    }
    return model;
  }

  /** One step: the likeliest token after `ids`, which follow all that came before. */
  async step(ids) {
    if (this.position + ids.length > this.limits.max_sequence) {
      throw new Error("prompt and answer are longer than max_sequence");
    }
    if (!ids.every((id) => Number.isInteger(id) && id >= 0 && id < this.limits.vocab_size)) {
      throw new Error(`ids are numbers from 0 to ${this.limits.vocab_size - 1}`);
    }
    const given = {
      position: tensor("int64", [1], [this.position]),
      length: tensor("int64", [1], [ids.length]),
      index: tensor("int64", [ids.length], [...ids.keys()]),
    };
    const feeds = {};
    for (const name of this.part.inputs) feeds[name] = given[name] ?? tensor("int64", [1, ids.length], ids);
    const [logits] = this.part.outputs;
    const fetches = { [logits]: null };
    for (const state of this.part.states) {
      feeds[state.input] = this.states[state.name];
      fetches[state.output] = this.states[state.name]; // the same memory: changed in place
    }
    const results = await this.session.run(feeds, fetches);
    this.position += ids.length;
    const numbers = results[logits].data;
    return numbers.reduce((best, number, place) => (number > numbers[best] ? place : best), 0);
  }
}

const [folder, prompt, count = "16"] = process.argv.slice(2);
if (prompt === undefined) {
  console.error("usage: node decode.mjs FOLDER IDS [COUNT]");
  process.exit(2);
}
try {
  const model = await Model.load(folder);
  const tokens = [];
  for (let ids = prompt.split(",").map(Number); tokens.length < Number(count); ids = tokens.slice(-1)) {
    tokens.push(await model.step(ids));
  }
  console.log(tokens.join(" "));
} catch (error) {
  console.error(error.message);
  process.exit(1);
}
