/** Numbers of the ONNX file format that the writer and the reader share. */

/** Fields of ModelProto. */
export const MODEL = { irVersion: 1, producerName: 2, producerVersion: 3, graph: 7, opsetImport: 8 } as const;
/** Fields of OperatorSetIdProto. */
export const OPSET = { domain: 1, version: 2 } as const;
/** Fields of GraphProto. */
export const GRAPH = { node: 1, name: 2, initializer: 5, input: 11, output: 12, sparseInitializer: 15 } as const;
/** Fields of NodeProto. */
export const NODE = { input: 1, output: 2, name: 3, opType: 4, attribute: 5, domain: 7 } as const;
/** Fields of AttributeProto. */
export const ATTRIBUTE = { name: 1, float: 2, integer: 3, tensor: 5, type: 20 } as const;
/** Values of AttributeProto.type. */
export const ATTRIBUTE_TYPE = { float: 1, integer: 2 } as const;
/** Fields of TensorProto. */
export const TENSOR = {
  dims: 1,
  dataType: 2,
  segment: 3,
  floatData: 4,
  name: 8,
  rawData: 9,
  externalData: 13,
  dataLocation: 14,
} as const;
/** Fields of ValueInfoProto, TypeProto, its tensor type, the shape and a dimension. */
export const VALUE_INFO = { name: 1, type: 2 } as const;
export const TYPE = { tensorType: 1 } as const;
export const TENSOR_TYPE = { elementType: 1, shape: 2 } as const;
export const SHAPE = { dim: 1 } as const;
export const DIMENSION = { value: 1, parameter: 2 } as const;

/** TensorProto.DataType of float32. */
export const FLOAT = 1;
/** The one operator set that is written and read. */
export const OPSET_VERSION = 17;
/** Largest model file that is read, in bytes. */
export const MAX_MODEL_BYTES = 64 * 1024 * 1024;
