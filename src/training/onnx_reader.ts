/**
 * Reads a model from an ONNX file when, and only when, it is the network of this trainer: Gemm or MatMul + Add, Relu,
 * Gemm or MatMul + Add, with 64 hidden units (online-training.md, section 3.3). Everything else is refused with its reason.
 */
import { DIMENSION, FLOAT, GRAPH, MAX_MODEL_BYTES, MODEL, OPSET, OPSET_VERSION } from "./onnx_format.ts";
import { SHAPE, TENSOR_TYPE, TYPE, VALUE_INFO } from "./onnx_format.ts";
import { type OnnxNode, readNode, readTensor, type Tensor } from "./onnx_parts.ts";
import { HIDDEN, Params } from "./params.ts";
import { protoBytes, protoFields, protoInteger, protoString } from "./protobuf.ts";
import { TrainingError } from "./errors.ts";

const OLDEST_IR = 3, NEWEST_IR = 10;
/** Nodes, initialisers and inputs of a graph; the network needs seven at most, exporters add a few. */
const MAX_GRAPH_PARTS = 64;

interface Graph {
  readonly nodes: OnnxNode[];
  readonly tensors: Map<string, Tensor>;
  readonly inputs: ValueInfo[];
  readonly outputs: ValueInfo[];
}

interface ValueInfo {
  readonly name: string;
  readonly elementType: number;
  /** Declared sizes; undefined where a dimension is a symbol. Undefined as a whole when no shape is declared. */
  readonly shape: (number | undefined)[] | undefined;
}

/**
 * The parameters in `file`.
 *
 * @param nFeatures the input width that the trainer works with.
 * @throws TrainingError `invalid_model` with the reason.
 */
export function readOnnx(file: Uint8Array, nFeatures: number): Params {
  if (file.length === 0) throw invalid("the file is empty");
  if (file.length > MAX_MODEL_BYTES) {
    throw invalid(`the file has ${file.length} bytes, the limit is ${MAX_MODEL_BYTES}`);
  }
  const graph = readModel(file);
  const input = soleInput(graph, nFeatures);
  return new Matcher(graph, nFeatures).match(input);
}

function readModel(file: Uint8Array): Graph {
  let graph: Uint8Array | undefined;
  let ir: number | undefined;
  let opset: number | undefined;
  for (const field of protoFields(file)) {
    if (field.number === MODEL.irVersion) ir = protoInteger(field);
    else if (field.number === MODEL.graph) graph = protoBytes(field);
    else if (field.number === MODEL.opsetImport) opset = readOpset(protoBytes(field)) ?? opset;
  }
  if (ir === undefined || ir < OLDEST_IR || ir > NEWEST_IR) {
    throw invalid(`IR version ${ir ?? "missing"} is not within ${OLDEST_IR} to ${NEWEST_IR}`);
  }
  if (opset !== OPSET_VERSION) throw invalid(`opset ${opset ?? "missing"} is not ${OPSET_VERSION}`);
  if (graph === undefined) throw invalid("there is no graph");
  return readGraph(graph);
}

/** Version of the default domain; undefined for any other domain, whose operators are refused where they are used. */
function readOpset(message: Uint8Array): number | undefined {
  let domain = "", version: number | undefined;
  for (const field of protoFields(message)) {
    if (field.number === OPSET.domain) domain = protoString(field);
    else if (field.number === OPSET.version) version = protoInteger(field);
  }
  return domain === "" || domain === "ai.onnx" ? version ?? 0 : undefined;
}

function readGraph(message: Uint8Array): Graph {
  const graph: Graph = { nodes: [], tensors: new Map(), inputs: [], outputs: [] };
  let parts = 0;
  for (const field of protoFields(message)) {
    switch (field.number) {
      case GRAPH.node:
        graph.nodes.push(readNode(protoBytes(field)));
        break;
      case GRAPH.initializer: {
        const tensor = readTensor(protoBytes(field));
        if (graph.tensors.has(tensor.name)) throw invalid(`initialiser "${tensor.name}" occurs twice`);
        graph.tensors.set(tensor.name, tensor);
        break;
      }
      case GRAPH.input:
        graph.inputs.push(readValueInfo(protoBytes(field)));
        break;
      case GRAPH.output:
        graph.outputs.push(readValueInfo(protoBytes(field)));
        break;
      case GRAPH.sparseInitializer:
        throw invalid("sparse initialisers are not supported");
      default:
        continue;
    }
    if (++parts > MAX_GRAPH_PARTS) throw invalid(`the graph has more than ${MAX_GRAPH_PARTS} parts`);
  }
  return graph;
}

function readValueInfo(message: Uint8Array): ValueInfo {
  let name = "", elementType = 0, shape: (number | undefined)[] | undefined;
  for (const field of protoFields(message)) {
    if (field.number === VALUE_INFO.name) name = protoString(field);
    if (field.number !== VALUE_INFO.type) continue;
    for (const type of protoFields(protoBytes(field))) {
      if (type.number !== TYPE.tensorType) throw invalid(`"${name}" is not a tensor`);
      for (const part of protoFields(protoBytes(type))) {
        if (part.number === TENSOR_TYPE.elementType) elementType = protoInteger(part);
        else if (part.number === TENSOR_TYPE.shape) shape = readShape(protoBytes(part));
      }
    }
  }
  return { name, elementType, shape };
}

function readShape(message: Uint8Array): (number | undefined)[] {
  const dims: (number | undefined)[] = [];
  for (const field of protoFields(message)) {
    if (field.number !== SHAPE.dim) continue;
    let size: number | undefined;
    for (const part of protoFields(protoBytes(field))) {
      if (part.number === DIMENSION.value) size = protoInteger(part);
    }
    if (dims.push(size) > 8) throw invalid("a shape has more than 8 dimensions");
  }
  return dims;
}

/** The one input that is fed from outside (before IR 4, initialisers were listed among the inputs too). */
function soleInput(graph: Graph, nFeatures: number): string {
  const fed = graph.inputs.filter((input) => !graph.tensors.has(input.name));
  const [input] = fed;
  if (input === undefined || fed.length !== 1) throw invalid(`the graph has ${fed.length} inputs instead of 1`);
  if (input.elementType !== FLOAT) throw invalid(`input "${input.name}" is not float32`);
  const width = input.shape?.[1];
  if (input.shape !== undefined && (input.shape.length !== 2 || (width !== undefined && width !== nFeatures))) {
    throw invalid(`input width ${width ?? "missing"} where the trainer has ${nFeatures}`);
  }
  if (graph.outputs.length !== 1) throw invalid(`the graph has ${graph.outputs.length} outputs instead of 1`);
  return input.name;
}

/** Follows the one path from the input to the output. */
class Matcher {
  readonly #tensors: Map<string, Tensor>;
  /** Names that Identity made, with what they stand for. */
  readonly #alias = new Map<string, string>();
  readonly #steps: OnnxNode[] = [];
  readonly #params: Params;
  readonly #output: string;
  #at = 0;

  constructor(graph: Graph, nFeatures: number) {
    this.#tensors = graph.tensors;
    this.#params = new Params(nFeatures);
    this.#output = graph.outputs[0]?.name ?? "";
    for (const node of graph.nodes) this.#sort(node);
  }

  #sort(node: OnnxNode): void {
    if (node.output === undefined) throw invalid(`operator ${node.opType} has no single output`);
    if (this.#tensors.has(node.output) || this.#alias.has(node.output)) {
      throw invalid(`"${node.output}" is defined twice`);
    }
    if (node.opType === "Identity" && node.inputs[0] !== undefined) this.#alias.set(node.output, node.inputs[0]);
    else if (node.opType === "Constant" && node.value !== undefined) this.#tensors.set(node.output, node.value);
    else this.#steps.push(node);
  }

  match(input: string): Params {
    const { w0, b0, w1, b1, nFeatures } = this.#params;
    const hidden = this.#dense(input, nFeatures, HIDDEN, w0, b0);
    const relu = this.#next("Relu");
    this.#expectInput(relu, hidden);
    const score = this.#dense(relu.output ?? "", HIDDEN, 1, w1, b1);
    const extra = this.#steps[this.#at];
    if (extra !== undefined) throw invalid(`operator ${extra.opType} follows the second layer`);
    if (this.#resolve(this.#output) !== score) throw invalid(`output "${this.#output}" is not the second layer's`);
    if (!this.#params.isFinite()) throw invalid("a weight is not a finite number");
    return this.#params;
  }

  /** Matches one dense layer and copies its weights as [outputs, inputs]. Returns the name of its result. */
  #dense(input: string, inputs: number, outputs: number, weights: Float32Array, bias: Float32Array): string {
    const node = this.#next("Gemm", "MatMul");
    this.#expectInput(node, input);
    const transposed = node.opType === "Gemm" && node.transB;
    const matrix = this.#weights(node.inputs[1], transposed ? [outputs, inputs] : [inputs, outputs]);
    if (transposed) weights.set(matrix);
    else transpose(matrix, inputs, outputs, weights);
    if (node.opType === "Gemm") {
      if (node.alpha !== 1 || node.beta !== 1 || node.transA) throw invalid("Gemm must have alpha 1, beta 1, transA 0");
      bias.set(this.#bias(node.inputs[2], outputs));
      return node.output ?? "";
    }
    const add = this.#next("Add");
    const [left, right] = add.inputs.map((name) => this.#resolve(name));
    const other = left === node.output ? right : right === node.output ? left : undefined;
    if (other === undefined || add.inputs.length !== 2) throw invalid("Add does not follow its MatMul");
    bias.set(this.#bias(other, outputs));
    return add.output ?? "";
  }

  #next(...allowed: string[]): OnnxNode {
    const node = this.#steps[this.#at++];
    if (node === undefined) throw invalid(`the graph ends where ${allowed.join(" or ")} must follow`);
    if (node.domain !== "" && node.domain !== "ai.onnx") {
      throw invalid(`operator domain "${node.domain}" is not supported`);
    }
    if (!allowed.includes(node.opType)) {
      throw invalid(`operator ${node.opType} where ${allowed.join(" or ")} must follow`);
    }
    return node;
  }

  #expectInput(node: OnnxNode, name: string): void {
    if (this.#resolve(node.inputs[0] ?? "") !== name) throw invalid(`${node.opType} does not take "${name}"`);
  }

  #weights(name: string | undefined, shape: readonly [number, number]): Float32Array {
    const tensor = this.#tensor(name);
    if (tensor.dims.length !== 2 || tensor.dims[0] !== shape[0] || tensor.dims[1] !== shape[1]) {
      throw invalid(`tensor "${tensor.name}" has shape [${tensor.dims}] instead of [${shape}]`);
    }
    return tensor.values;
  }

  #bias(name: string | undefined, length: number): Float32Array {
    const tensor = this.#tensor(name);
    // [n], [1, n], and for a single output also a scalar: all broadcast over the batch in the same way.
    const last = tensor.dims.at(-1) ?? 1;
    if (tensor.values.length !== length || last !== length || tensor.dims.length > 2) {
      throw invalid(`tensor "${tensor.name}" has shape [${tensor.dims}] instead of [${length}]`);
    }
    return tensor.values;
  }

  #tensor(name: string | undefined): Tensor {
    const resolved = this.#resolve(name ?? "");
    const tensor = this.#tensors.get(resolved);
    if (tensor === undefined) throw invalid(`"${resolved}" is not a constant`);
    return tensor;
  }

  #resolve(name: string): string {
    for (let hops = 0; hops <= MAX_GRAPH_PARTS; hops++) {
      const target = this.#alias.get(name);
      if (target === undefined) return name;
      name = target;
    }
    throw invalid("Identity nodes form a circle");
  }
}

/** Copies [inputs, outputs] as [outputs, inputs]. */
function transpose(matrix: Float32Array, inputs: number, outputs: number, into: Float32Array): void {
  for (let o = 0; o < outputs; o++) {
    for (let i = 0; i < inputs; i++) into[o * inputs + i] = matrix[i * outputs + o] as number;
  }
}

function invalid(reason: string): TrainingError {
  return new TrainingError("invalid_model", reason);
}
