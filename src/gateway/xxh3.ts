/**
 * XXH3, 64 bits, seed 0: the hash by which gateways choose workers (spec/queue.md 9). Written with BigInt, because it runs once a
 * request, mostly over a few hundred bytes (some microseconds): what counts is that it can be read beside the algorithm's description.
 */

const PRIME32_1 = 0x9e3779b1n;
const PRIME32_2 = 0x85ebca77n;
const PRIME32_3 = 0xc2b2ae3dn;
const PRIME64_1 = 0x9e3779b185ebca87n;
const PRIME64_2 = 0xc2b2ae3d27d4eb4fn;
const PRIME64_3 = 0x165667b19e3779f9n;
const PRIME64_4 = 0x85ebca77c2b2ae63n;
const PRIME64_5 = 0x27d4eb2f165667c5n;
const PRIME_MX1 = 0x165667919e3779f9n;
const PRIME_MX2 = 0x9fb21c651e98df25n;

/** The algorithm's default secret. */
const secret = hexView(
  "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f" +
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c" +
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8" +
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364" +
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e" +
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e",
);
const SECRET_BYTES = 192;

const STRIPE_BYTES = 64;
const SECRET_STEP = 8;
const STRIPES_PER_BLOCK = (SECRET_BYTES - STRIPE_BYTES) / SECRET_STEP;
/** Longest input that is hashed without accumulators. */
const MOST_MIXED_BYTES = 240;

/** The hash of bytes, from 0 to 2^64 - 1. */
export function xxh3(bytes: Uint8Array): bigint {
  const input = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  if (bytes.length <= 16) return hashUpTo16(input);
  if (bytes.length <= 128) return hashUpTo128(input);
  return bytes.length <= MOST_MIXED_BYTES ? hashUpTo240(input) : hashLong(input);
}

/** The hash of a text's UTF-8. */
export function xxh3OfText(text: string): bigint {
  return xxh3(new TextEncoder().encode(text));
}

function hashUpTo16(input: DataView): bigint {
  const length = input.byteLength;
  if (length > 8) {
    const low = u64(input, 0) ^ u64(secret, 24) ^ u64(secret, 32);
    const high = u64(input, length - 8) ^ u64(secret, 40) ^ u64(secret, 48);
    return avalanche(wrap(BigInt(length) + swapped(low) + high + foldedProduct(low, high)));
  }
  if (length >= 4) {
    const joined = BigInt(input.getUint32(length - 4, true)) | BigInt(input.getUint32(0, true)) << 32n;
    let hash = joined ^ u64(secret, 8) ^ u64(secret, 16);
    hash ^= rotated(hash, 49n) ^ rotated(hash, 24n);
    hash = wrap(hash * PRIME_MX2);
    hash ^= (hash >> 35n) + BigInt(length);
    hash = wrap(hash * PRIME_MX2);
    return hash ^ hash >> 28n;
  }
  if (length === 0) return finished(u64(secret, 56) ^ u64(secret, 64));
  const [first, middle, last] = [0, length >> 1, length - 1].map((at) => BigInt(input.getUint8(at)));
  const joined = (first ?? 0n) << 16n | (middle ?? 0n) << 24n | (last ?? 0n) | BigInt(length) << 8n;
  return finished(joined ^ BigInt(secret.getUint32(0, true) ^ secret.getUint32(4, true)) & 0xffffffffn);
}

/** Pairs of 16 bytes, from both ends towards the middle. */
function hashUpTo128(input: DataView): bigint {
  const length = input.byteLength;
  let sum = BigInt(length) * PRIME64_1;
  for (let pair = (length - 1) >> 5; pair >= 0; pair--) {
    sum += mixed(input, 16 * pair, 32 * pair) + mixed(input, length - 16 * (pair + 1), 32 * pair + 16);
  }
  return avalanche(wrap(sum));
}

function hashUpTo240(input: DataView): bigint {
  const length = input.byteLength;
  let sum = BigInt(length) * PRIME64_1;
  for (let round = 0; round < 8; round++) sum += mixed(input, 16 * round, 16 * round);
  sum = avalanche(wrap(sum));
  for (let round = 8; round < length >> 4; round++) sum += mixed(input, 16 * round, 16 * (round - 8) + 3);
  // The last 16 bytes, which a round above may have had in part.
  return avalanche(wrap(sum + mixed(input, length - 16, 136 - 17)));
}

function hashLong(input: DataView): bigint {
  const length = input.byteLength;
  const lanes = [PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1];
  // The last 64 bytes are taken by themselves below.
  const stripes = Math.floor((length - 1) / STRIPE_BYTES);
  for (let stripe = 0; stripe < stripes; stripe++) {
    const inBlock = stripe % STRIPES_PER_BLOCK;
    accumulate(lanes, input, stripe * STRIPE_BYTES, inBlock * SECRET_STEP);
    if (inBlock === STRIPES_PER_BLOCK - 1) scramble(lanes);
  }
  accumulate(lanes, input, length - STRIPE_BYTES, SECRET_BYTES - STRIPE_BYTES - 7);
  let sum = BigInt(length) * PRIME64_1;
  for (let pair = 0; pair < 4; pair++) {
    const [low = 0n, high = 0n] = lanes.slice(2 * pair, 2 * pair + 2);
    sum += foldedProduct(low ^ u64(secret, 11 + 16 * pair), high ^ u64(secret, 19 + 16 * pair));
  }
  return avalanche(wrap(sum));
}

/** Takes a stripe into the lanes. */
function accumulate(lanes: bigint[], input: DataView, at: number, secretAt: number): void {
  for (let lane = 0; lane < lanes.length; lane++) {
    const value = u64(input, at + 8 * lane);
    const keyed = value ^ u64(secret, secretAt + 8 * lane);
    lanes[lane ^ 1] = wrap((lanes[lane ^ 1] ?? 0n) + value);
    lanes[lane] = wrap((lanes[lane] ?? 0n) + (keyed & 0xffffffffn) * (keyed >> 32n));
  }
}

/** What happens to the lanes at the end of a block. */
function scramble(lanes: bigint[]): void {
  for (const [lane, value] of lanes.entries()) {
    const keyed = value ^ value >> 47n ^ u64(secret, SECRET_BYTES - STRIPE_BYTES + 8 * lane);
    lanes[lane] = wrap(keyed * PRIME32_1);
  }
}

/** Folds 16 bytes with 16 bytes of the secret. */
function mixed(input: DataView, at: number, secretAt: number): bigint {
  return foldedProduct(u64(input, at) ^ u64(secret, secretAt), u64(input, at + 8) ^ u64(secret, secretAt + 8));
}

/** Both halves of the product of 128 bits, XORed. */
function foldedProduct(a: bigint, b: bigint): bigint {
  const product = a * b;
  return wrap(product) ^ product >> 64n;
}

function avalanche(value: bigint): bigint {
  const mixed = wrap((value ^ value >> 37n) * PRIME_MX1);
  return mixed ^ mixed >> 32n;
}

/** The end of the shortest hashes. */
function finished(value: bigint): bigint {
  const once = wrap((value ^ value >> 33n) * PRIME64_2);
  const twice = wrap((once ^ once >> 29n) * PRIME64_3);
  return twice ^ twice >> 32n;
}

function rotated(value: bigint, bits: bigint): bigint {
  return wrap(value << bits) | value >> 64n - bits;
}

/** The eight bytes in the other order. */
function swapped(value: bigint): bigint {
  const view = new DataView(new ArrayBuffer(8));
  view.setBigUint64(0, value, true);
  return view.getBigUint64(0);
}

function u64(view: DataView, at: number): bigint {
  return view.getBigUint64(at, true);
}

function wrap(value: bigint): bigint {
  return BigInt.asUintN(64, value);
}

function hexView(hex: string): DataView {
  const bytes = hex.match(/../g)?.map((pair) => parseInt(pair, 16)) ?? [];
  return new DataView(Uint8Array.from(bytes).buffer);
}
