/**
 * Writes a checkpoint: opset 17, IR 8, Gemm → Relu → Gemm, a dynamic first axis named `batch`, initialisers in raw
 * little-endian form, no metadata (online-training.md, section 3.3). The same parameters give the same bytes.
 */
import {
  ATTRIBUTE,
  ATTRIBUTE_TYPE,
  DIMENSION,
  FLOAT,
  GRAPH,
  MODEL,
  NODE,
  OPSET,
  OPSET_VERSION,
  SHAPE,
  TENSOR,
  TENSOR_TYPE,
  TYPE,
  VALUE_INFO,
} from "./onnx_format.ts";
import { type Params, TENSOR_NAMES, type TensorName, tensorShapes } from "./params.ts";
import { ProtoWriter } from "./protobuf.ts";

const IR_VERSION = 8;

/** The file's bytes. `producerVersion` is the version of this program. */
export function writeOnnx(params: Params, producerVersion: string): Uint8Array<ArrayBuffer> {
  return new ProtoWriter()
    .integer(MODEL.irVersion, IR_VERSION)
    .string(MODEL.producerName, "vmafx-sidecar")
    .string(MODEL.producerVersion, producerVersion)
    .message(MODEL.graph, graph(params))
    .message(MODEL.opsetImport, new ProtoWriter().string(OPSET.domain, "").integer(OPSET.version, OPSET_VERSION))
    .finish();
}

function graph(params: Params): ProtoWriter {
  const writer = new ProtoWriter()
    .message(GRAPH.node, gemm("gemm_0", ["features", "0.weight", "0.bias"], "hidden"))
    .message(
      GRAPH.node,
      new ProtoWriter().string(NODE.input, "hidden").string(NODE.output, "act").string(NODE.name, "relu_1")
        .string(NODE.opType, "Relu"),
    )
    .message(GRAPH.node, gemm("gemm_2", ["act", "2.weight", "2.bias"], "score"))
    .string(GRAPH.name, "main_graph");
  for (const name of TENSOR_NAMES) writer.message(GRAPH.initializer, tensor(params, name));
  return writer
    .message(GRAPH.input, valueInfo("features", params.nFeatures))
    .message(GRAPH.output, valueInfo("score", 1));
}

function gemm(name: string, inputs: readonly string[], output: string): ProtoWriter {
  const node = new ProtoWriter();
  for (const input of inputs) node.string(NODE.input, input);
  node.string(NODE.output, output).string(NODE.name, name).string(NODE.opType, "Gemm");
  for (const factor of ["alpha", "beta"]) {
    node.message(
      NODE.attribute,
      new ProtoWriter().string(ATTRIBUTE.name, factor).float(ATTRIBUTE.float, 1)
        .integer(ATTRIBUTE.type, ATTRIBUTE_TYPE.float),
    );
  }
  return node.message(
    NODE.attribute,
    new ProtoWriter().string(ATTRIBUTE.name, "transB").integer(ATTRIBUTE.integer, 1)
      .integer(ATTRIBUTE.type, ATTRIBUTE_TYPE.integer),
  );
}

function tensor(params: Params, name: TensorName): ProtoWriter {
  const writer = new ProtoWriter();
  for (const dim of tensorShapes(params.nFeatures)[name]) writer.integer(TENSOR.dims, dim);
  return writer.integer(TENSOR.dataType, FLOAT).string(TENSOR.name, name)
    .bytes(TENSOR.rawData, rawBytes(params.tensor(name)));
}

function valueInfo(name: string, width: number): ProtoWriter {
  const shape = new ProtoWriter()
    .message(SHAPE.dim, new ProtoWriter().string(DIMENSION.parameter, "batch"))
    .message(SHAPE.dim, new ProtoWriter().integer(DIMENSION.value, width));
  const type = new ProtoWriter().integer(TENSOR_TYPE.elementType, FLOAT).message(TENSOR_TYPE.shape, shape);
  return new ProtoWriter().string(VALUE_INFO.name, name)
    .message(VALUE_INFO.type, new ProtoWriter().message(TYPE.tensorType, type));
}

/** The numbers as they lie in memory: every platform that this runs on is little-endian, as the file wants them. */
function rawBytes(values: Float32Array<ArrayBuffer>): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}
