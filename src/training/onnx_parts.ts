/** Nodes and tensors of an ONNX graph, as far as {@link readOnnx} needs them. */
import { ATTRIBUTE, FLOAT, NODE, TENSOR } from "./onnx_format.ts";
import { protoBytes, protoFields, protoFloat, protoFloatBytes, protoInteger } from "./protobuf.ts";
import { protoIntegers, protoString } from "./protobuf.ts";
import { TrainingError } from "./errors.ts";

const MAX_DIMS = 8;

/** A float32 constant. */
export interface Tensor {
  readonly name: string;
  readonly dims: readonly number[];
  readonly values: Float32Array;
}

/** One operator with the attributes that the network's operators have. */
export interface OnnxNode {
  readonly opType: string;
  readonly domain: string;
  readonly inputs: readonly string[];
  /** The one output; undefined when there are none or several. */
  readonly output: string | undefined;
  readonly alpha: number;
  readonly beta: number;
  readonly transA: boolean;
  readonly transB: boolean;
  /** The tensor of a Constant. */
  readonly value: Tensor | undefined;
}

/** Parses a NodeProto. */
export function readNode(message: Uint8Array): OnnxNode {
  const inputs: string[] = [], outputs: string[] = [];
  let opType = "", domain = "";
  const attributes: Attributes = { alpha: 1, beta: 1, transA: false, transB: false, value: undefined };
  for (const field of protoFields(message)) {
    if (field.number === NODE.input) inputs.push(protoString(field));
    else if (field.number === NODE.output) outputs.push(protoString(field));
    else if (field.number === NODE.opType) opType = protoString(field);
    else if (field.number === NODE.domain) domain = protoString(field);
    else if (field.number === NODE.attribute) readAttribute(protoBytes(field), attributes);
    if (inputs.length + outputs.length > 16) throw invalid(`operator ${opType} has more than 16 inputs and outputs`);
  }
  return { opType, domain, inputs, output: outputs.length === 1 ? outputs[0] : undefined, ...attributes };
}

interface Attributes {
  alpha: number;
  beta: number;
  transA: boolean;
  transB: boolean;
  value: Tensor | undefined;
}

function readAttribute(message: Uint8Array, into: Attributes): void {
  let name = "", float = 0, integer = 0, tensor: Uint8Array | undefined;
  for (const field of protoFields(message)) {
    if (field.number === ATTRIBUTE.name) name = protoString(field);
    else if (field.number === ATTRIBUTE.float) float = protoFloat(field);
    else if (field.number === ATTRIBUTE.integer) integer = protoInteger(field);
    else if (field.number === ATTRIBUTE.tensor) tensor = protoBytes(field);
  }
  if (name === "alpha" || name === "beta") into[name] = float;
  else if (name === "transA" || name === "transB") into[name] = integer !== 0;
  else if (name === "value" && tensor !== undefined) into.value = readTensor(tensor);
}

/**
 * Parses a TensorProto: float32 in raw or `float_data` form. External data is always refused: the checkpoint's digest
 * does not cover it.
 */
export function readTensor(message: Uint8Array): Tensor {
  let name = "", dataType = 0, raw: Uint8Array | undefined, external = false;
  const dims: number[] = [], pieces: Uint8Array[] = [];
  for (const field of protoFields(message)) {
    if (field.number === TENSOR.dims) dims.push(...protoIntegers(field, MAX_DIMS));
    else if (field.number === TENSOR.dataType) dataType = protoInteger(field);
    else if (field.number === TENSOR.name) name = protoString(field);
    else if (field.number === TENSOR.rawData) raw = protoBytes(field);
    else if (field.number === TENSOR.floatData) pieces.push(protoFloatBytes(field));
    else if (field.number === TENSOR.externalData) external = true;
    else if (field.number === TENSOR.dataLocation) external ||= protoInteger(field) !== 0;
    else if (field.number === TENSOR.segment) throw invalid(`tensor "${name}" is segmented`);
    if (dims.length > MAX_DIMS) throw invalid(`a tensor has more than ${MAX_DIMS} dimensions`);
  }
  if (external) throw invalid(`tensor "${name}" lies in a second file, which the digest does not cover`);
  if (dataType !== FLOAT) throw invalid(`tensor "${name}" has data type ${dataType} instead of float32`);
  const count = dims.reduce((product, dim) => product * dim, 1);
  const data = raw ?? joined(pieces);
  if (data.length !== 4 * count) {
    throw invalid(`tensor "${name}" of shape [${dims}] has ${data.length} bytes instead of ${4 * count}`);
  }
  // A copy, because the bytes need not lie at a multiple of 4. Every platform that this runs on is little-endian.
  return { name, dims, values: new Float32Array(data.slice().buffer) };
}

function joined(pieces: readonly Uint8Array[]): Uint8Array {
  const all = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}

function invalid(reason: string): TrainingError {
  return new TrainingError("invalid_model", reason);
}
