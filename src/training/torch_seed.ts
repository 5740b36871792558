/** Parameters from a PyTorch state dict (online-training.md, section 3.4; vectors: seed.json). */
import { type ElementType, type PickledTensor, readStateDictPickle } from "./pickle_reader.ts";
import { Params, TENSOR_NAMES, type TensorName, tensorShapes } from "./params.ts";
import { looksLikeZip, readStoredZip } from "./zip_reader.ts";
import { TrainingError } from "./errors.ts";

const BYTES_OF: Readonly<Record<ElementType, number>> = { float16: 2, float32: 4, float64: 8 };

/**
 * Reads a file written by `torch.save(state_dict)`: exactly the four tensors of the network, of the right shapes.
 * float64 and float16 are converted to float32.
 *
 * @throws TrainingError `invalid_seed` with the reason.
 */
export function readTorchStateDict(file: Uint8Array, nFeatures: number): Params {
  if (!looksLikeZip(file)) {
    throw invalid("the file is not a ZIP archive (the old format of PyTorch before 1.6 is not supported)");
  }
  const entries = readStoredZip(file);
  const top = topFolder(entries);
  if (text(entries.get(`${top}byteorder`)) === "big") throw invalid("the numbers are big-endian");
  const pickle = entries.get(`${top}data.pkl`);
  if (pickle === undefined) throw invalid("the archive has no data.pkl");
  const tensors = readStateDictPickle(pickle);
  for (const name of tensors.keys()) {
    if (!TENSOR_NAMES.some((known) => known === name)) throw invalid(`unexpected key "${name}"`);
  }
  const params = new Params(nFeatures);
  const shapes = tensorShapes(nFeatures);
  for (const name of TENSOR_NAMES) {
    const tensor = tensors.get(name);
    if (tensor === undefined) throw invalid(`key "${name}" is missing`);
    if (tensor.sizes.join() !== shapes[name].join()) {
      throw invalid(`"${name}" has shape [${tensor.sizes}] instead of [${shapes[name]}]`);
    }
    const data = entries.get(`${top}data/${tensor.storage.key}`);
    if (data === undefined) throw invalid(`the archive has no data/${tensor.storage.key}`);
    copyTensor(name, tensor, data, params.tensor(name));
  }
  if (!params.isFinite()) throw invalid("a weight is not a finite float32");
  return params;
}

/** The one folder that everything lies in, with its slash. */
function topFolder(entries: ReadonlyMap<string, Uint8Array>): string {
  for (const name of entries.keys()) {
    if (name.endsWith("/data.pkl") && name.indexOf("/") === name.length - "/data.pkl".length) {
      return name.slice(0, -"data.pkl".length);
    }
  }
  throw invalid("the archive has no data.pkl");
}

function copyTensor(name: TensorName, tensor: PickledTensor, data: Uint8Array, into: Float32Array): void {
  const { storage, offset, sizes, strides } = tensor;
  const width = BYTES_OF[storage.elementType];
  if (data.length !== storage.count * width) {
    throw invalid(`data/${storage.key} has ${data.length} bytes instead of ${storage.count * width}`);
  }
  const last = sizes.reduce((sum, size, axis) => sum + (size - 1) * (strides[axis] as number), offset);
  if (last >= storage.count) throw invalid(`"${name}" reads outside its storage`);
  const view = new DataView(data.buffer, data.byteOffset, data.length);
  const [rows, columns] = sizes.length === 2 ? [sizes[0] as number, sizes[1] as number] : [1, sizes[0] as number];
  const rowStride = sizes.length === 2 ? strides[0] as number : 0;
  const columnStride = strides.at(-1) as number;
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const at = (offset + row * rowStride + column * columnStride) * width;
      into[row * columns + column] = element(view, at, storage.elementType);
    }
  }
}

function element(view: DataView, at: number, type: ElementType): number {
  switch (type) {
    case "float32":
      return view.getFloat32(at, true);
    case "float64":
      return view.getFloat64(at, true);
    case "float16":
      return halfToNumber(view.getUint16(at, true));
  }
}

/** IEEE 754 half precision. */
function halfToNumber(bits: number): number {
  const sign = (bits & 0x8000) !== 0 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f, fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

function text(bytes: Uint8Array | undefined): string | undefined {
  return bytes === undefined ? undefined : new TextDecoder().decode(bytes).trim();
}

function invalid(reason: string): TrainingError {
  return new TrainingError("invalid_seed", reason);
}
