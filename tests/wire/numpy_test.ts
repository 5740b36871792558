/** Arrays of numpy: what is written is read back, and what clients must not accept is refused. */
import assert from "node:assert/strict";
import { MsgpackReader } from "../../src/wire/msgpack/reader.ts";
import { MsgpackWriter } from "../../src/wire/msgpack/writer.ts";
import { numpyLength, numpyValues, readNumpy, writeNumpyHead } from "../../src/wire/numpy.ts";
import { encodeNotation } from "../harness/notation.ts";

function read(notation: unknown) {
  return readNumpy(new MsgpackReader(encodeNotation(notation)));
}

/** An array's map from its entries, keys as bin. */
function entries(pairs: readonly (readonly [string, unknown])[]) {
  const hex = (text: string) =>
    [...new TextEncoder().encode(text)].map((b) => b.toString(16).padStart(2, "0")).join("");
  return { $map: pairs.map(([key, value]) => [{ $bin: hex(key) }, value]) };
}

const EMPTY = { $bin: "" };

Deno.test("the length that is announced is the length that is written", () => {
  for (const rows of [0, 1, 127, 128, 255, 256, 70000]) {
    for (const columns of [undefined, 0, 1, 128, 300]) {
      const bytes = rows * (columns ?? 1) * 4;
      if (bytes > 1 << 20) continue;
      const writer = new MsgpackWriter();
      writeNumpyHead(writer, "<f4", rows, columns, bytes);
      writer.raw(new Uint8Array(bytes));
      assert.equal(writer.length, numpyLength(rows, columns, bytes));
      const array = readNumpy(new MsgpackReader(writer.view()));
      assert.deepEqual(array.shape, columns === undefined ? [rows] : [rows, columns]);
      assert.equal(numpyValues(array).length, rows * (columns ?? 1));
    }
  }
});

Deno.test("every element type is read in both byte orders", () => {
  const cases: readonly [string, readonly number[]][] = [
    ["f2", [1, -0.5, 65504]],
    ["f4", [0.5, -1.25]],
    ["f8", [1e300, -2]],
    ["i2", [-32768, 1]],
    ["i4", [-2147483648, 5]],
    ["i8", [-5, 2 ** 40]],
    ["u2", [65535, 1]],
    ["u4", [4294967295, 1]],
    ["u8", [2 ** 52, 1]],
  ];
  for (const [type, values] of cases) {
    for (const order of ["<", ">"]) {
      const array = read({ $numpy: `${order}${type}`, shape: [values.length], values });
      assert.deepEqual([...numpyValues(array)], values, `${order}${type}`);
    }
  }
  for (const [dtype, values] of [["|i1", [-128, 127]], ["|u1", [0, 255]], ["|b1", [1, 0]]] as const) {
    assert.deepEqual([...numpyValues(read({ $numpy: dtype, shape: [2], values }))], values);
  }
});

Deno.test("anything but a plain array or scalar is refused", () => {
  const good = [["nd", true], ["type", "<f4"], ["kind", EMPTY], ["shape", [1]], ["data", {
    $bin: "00000000",
  }]] as const;
  const but = (key: string, value: unknown) => entries(good.map((pair) => pair[0] === key ? [key, value] : pair));
  assert.equal(read(entries(good)).data.length, 4);
  const refused: readonly [unknown, RegExp][] = [
    [but("kind", { $bin: "4f" }), /only plain numpy arrays/],
    [but("type", "O"), /unsupported dtype 'O'/],
    [but("type", "<f3"), /unsupported dtype/],
    [but("type", "|f4"), /unsupported dtype/],
    [but("type", [["a", "<f4"]]), /expected str, got array/],
    [but("shape", [2]), /numpy data of 4 bytes, its shape needs 8/],
    [but("shape", [-1]), /outside 0..=/],
    [but("shape", new Array(9).fill(1)), /9 dimensions, at most 8/],
    [but("shape", [4294967296, 4294967296]), /its shape needs 73786976294838/],
    [but("data", { $bin: "0000" }), /numpy data of 2 bytes/],
    [but("nd", 1), /expected bool/],
    [entries(good.slice(0, 4)), /missing field 'data'/],
    [entries(good.filter(([key]) => key !== "shape")), /missing field 'shape'/],
    [entries([...good, ["nd", true]]), /duplicate field 'nd'/],
    [entries([...good, ["complex", true]]), /unknown key/],
    [{ nd: true }, /expected bin, got str/],
    [[1], /expected map/],
  ];
  for (const [notation, message] of refused) assert.throws(() => read(notation), message);
});
