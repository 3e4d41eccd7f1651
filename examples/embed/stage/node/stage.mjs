// Stages of a cut model from Node: no partc, nothing of npm; addon.c is the library as Node sees it.
//
//   node stage.mjs one FOLDER IDS FILE          the values that the source's stage sends in its first step, into FILE
//   node stage.mjs chain IDS COUNT FOLDER ...   COUNT tokens behind the prompt IDS, by the stages of all devices
//
// IDS is "1,2,3". PARTC_STAGE_ADDON names addon.node.
import { writeFileSync } from "node:fs";
import { createRequire } from "node:module";

const addon = createRequire(import.meta.url)(process.env.PARTC_STAGE_ADDON ?? "./addon.node");
const WIDTHS = [8, 4, 2, 2, 8, 4, 2, 1, 8, 4, 2, 1, 1]; // bytes of the element types, by their numbers
const [RECEIVED, SENT, EMITTED] = [1, 2, 3];

const ints = (text) => text.split(",").map(Number);
const idsOf = (numbers) => BigInt64Array.from(numbers, BigInt).buffer;
const opened = (folder) => {
  const stage = addon.open(folder, 0);
  addon.reset(stage, 1);
  return stage;
};

/** Outputs of a step, with room for them. */
function outputsOf(stage, step) {
  return addon
    .values(stage, step.phase)
    .filter(({ direction }) => direction >= SENT)
    .map(({ name, dtype }) => {
      const bytes = addon.shape(stage, step, name).reduce((total, size) => total * size, WIDTHS[dtype]);
      return { name, dtype, data: new ArrayBuffer(bytes) };
    });
}

/** Let a stage compute as far as the values reach that are there; what it makes is added. */
function goOn(device, step, made) {
  const isHere = ({ name }) => made.has(name);
  const late = new Set(device.awaits.filter((value) => !isHere(value)).map(({ message }) => message));
  const inputs = device.awaits.filter((value) => isHere(value) && !late.has(value.message));
  device.awaits = device.awaits.filter((value) => !inputs.includes(value));
  const outputs = outputsOf(device.stage, step);
  const given = inputs.map(({ name, dtype }) => ({ name, dtype, data: made.get(name) }));
  device.isOver = addon.step(device.stage, step, given, outputs);
  for (const { name, data, is_made } of outputs) if (is_made) made.set(name, data);
}

const awaits = (stage, phase) => addon.values(stage, phase).filter(({ direction }) => direction <= RECEIVED);

/** The token that a step of all stages brings. */
function stepOfRing(stages, step, ids) {
  const made = new Map([["input_ids", idsOf(ids)]]);
  let left = stages.map((stage) => ({ stage, awaits: awaits(stage, step.phase), isOver: false }));
  while (left.length) {
    for (const device of left) goOn(device, step, made);
    left = left.filter(({ isOver }) => !isOver);
  }
  const values = stages.flatMap((stage) => addon.values(stage, step.phase));
  const { name } = values.find(({ direction }) => direction === EMITTED);
  return Number(new BigInt64Array(made.get(name))[0]);
}

function chain(stages, ids, count) {
  const tokens = [stepOfRing(stages, { phase: "prefill", sequence: ids.length, position: 0 }, ids)];
  while (tokens.length < count) {
    const step = { phase: "decode", sequence: 1, position: ids.length + tokens.length - 1 };
    tokens.push(stepOfRing(stages, step, tokens.slice(-1)));
  }
  return tokens;
}

/** What the source's stage sends in the step of a prompt. */
function one(stage, ids) {
  const made = new Map([["input_ids", idsOf(ids)]]);
  const step = { phase: "prefill", sequence: ids.length, position: 0 };
  goOn({ stage, awaits: awaits(stage, step.phase), isOver: false }, step, made);
  const sent = addon.values(stage, step.phase).filter(({ direction }) => direction === SENT);
  return Buffer.concat(sent.map(({ name }) => Buffer.from(made.get(name))));
}

const [kind, ...words] = process.argv.slice(2);
try {
  if (kind === "one") {
    const [folder, ids, file] = words;
    writeFileSync(file, one(opened(folder), ints(ids)));
  } else {
    const [ids, count, ...folders] = words;
    console.log(chain(folders.map(opened), ints(ids), Number(count)).join(" "));
  }
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
}
