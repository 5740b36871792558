/**
 * Walks over one JSON text in UTF-8 without building it. The feedback reader needs two numbers out of a line and echoes a
 * third value byte for byte; it must still refuse whatever is not JSON, however deep it is nested.
 */

/** Deepest nesting of arrays and objects. */
export const MAX_JSON_DEPTH = 64;

/** Raised for a text that is not JSON; the message says what and at which byte. */
export class JsonSyntaxError extends Error {}

const QUOTE = 0x22, COMMA = 0x2c, MINUS = 0x2d, DOT = 0x2e, COLON = 0x3a, BACKSLASH = 0x5c;
const OPEN_ARRAY = 0x5b, CLOSE_ARRAY = 0x5d, OPEN_OBJECT = 0x7b, CLOSE_OBJECT = 0x7d;

/** What a value begins like. */
export type JsonKind = "object" | "array" | "string" | "number" | "true" | "false" | "null";

const strictUtf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const ascii = new TextDecoder();

/** Powers of ten that a double holds exactly. */
const POWERS = Float64Array.from({ length: 23 }, (_, i) => Number(`1e${i}`));

/** A place in a JSON text. */
export class JsonCursor {
  #bytes: Uint8Array = new Uint8Array(0);
  #start = 0;
  #end = 0;
  #notAscii = false;
  /** Index of the next byte. */
  at = 0;

  /** Goes to the beginning of the text at `start` to `end` of `bytes`; a byte order mark is skipped. */
  open(bytes: Uint8Array, start: number, end: number): void {
    this.#bytes = bytes;
    this.#start = start;
    this.#end = end;
    this.#notAscii = false;
    const marked = end - start >= 3 && bytes[start] === 0xef && bytes[start + 1] === 0xbb && bytes[start + 2] === 0xbf;
    this.at = marked ? start + 3 : start;
  }

  /** The next byte after white space, without taking it; −1 at the end. */
  peek(): number {
    while (this.at < this.#end) {
      const byte = this.#bytes[this.at] as number;
      if (byte !== 0x20 && byte !== 0x09 && byte !== 0x0a && byte !== 0x0d) return byte;
      this.at++;
    }
    return -1;
  }

  /** What the next value is. */
  kind(): JsonKind {
    const byte = this.peek();
    if (byte === OPEN_OBJECT) return "object";
    if (byte === OPEN_ARRAY) return "array";
    if (byte === QUOTE) return "string";
    if (byte === MINUS || (byte >= 0x30 && byte <= 0x39)) return "number";
    if (byte === 0x74) return "true";
    if (byte === 0x66) return "false";
    if (byte === 0x6e) return "null";
    throw this.#unexpected();
  }

  /** Goes into an array or object. Returns whether it has a first element. */
  enter(kind: "array" | "object"): boolean {
    this.#take(kind === "array" ? OPEN_ARRAY : OPEN_OBJECT);
    return !this.#takeIf(kind === "array" ? CLOSE_ARRAY : CLOSE_OBJECT);
  }

  /** Goes on after an element. Returns whether another one follows. */
  next(kind: "array" | "object"): boolean {
    if (this.#takeIf(COMMA)) return true;
    this.#take(kind === "array" ? CLOSE_ARRAY : CLOSE_OBJECT);
    return false;
  }

  /** The key of a member, and its colon. */
  key(): string {
    if (this.peek() !== QUOTE) throw this.#unexpected();
    const from = this.at;
    const escaped = this.#skipString();
    const to = this.at;
    this.#take(COLON);
    if (escaped || this.#notAscii) return JSON.parse(this.text(from, to)) as string;
    return ascii.decode(this.#bytes.subarray(from + 1, to - 1));
  }

  /** The text between two places, checked to be UTF-8. */
  text(from: number, to: number): string {
    return this.#decode(from, to);
  }

  /** Passes over one value of any kind. */
  skip(depth = 1): void {
    if (depth > MAX_JSON_DEPTH) {
      throw new JsonSyntaxError(`nesting deeper than ${MAX_JSON_DEPTH} at byte ${this.#offset()}`);
    }
    const kind = this.kind();
    switch (kind) {
      case "object":
        for (let more = this.enter(kind); more; more = this.next(kind)) {
          this.key();
          this.skip(depth + 1);
        }
        return;
      case "array":
        for (let more = this.enter(kind); more; more = this.next(kind)) this.skip(depth + 1);
        return;
      case "string":
        this.#skipString();
        return;
      case "number":
        this.number();
        return;
      default:
        this.#skipWord(kind);
    }
  }

  /** Reads a number; one that a double cannot hold becomes ±Infinity. */
  number(): number {
    // This is nearly all of the work on a line, so the place is a local variable until the number ends.
    const bytes = this.#bytes, end = this.#end, from = this.at;
    let at = from;
    const negative = bytes[at] === MINUS;
    if (negative) at++;
    const wholeFrom = at;
    let mantissa = 0, digit = 0;
    while (at < end && (digit = (bytes[at] as number) - 0x30) >= 0 && digit <= 9) {
      mantissa = mantissa * 10 + digit;
      at++;
    }
    let digits = at - wholeFrom, scale = 0;
    if (digits === 0 || (digits > 1 && bytes[wholeFrom] === 0x30)) throw this.#unexpected(at);
    if (at < end && bytes[at] === DOT) {
      const fractionFrom = ++at;
      while (at < end && (digit = (bytes[at] as number) - 0x30) >= 0 && digit <= 9) {
        mantissa = mantissa * 10 + digit;
        at++;
      }
      scale = fractionFrom - at;
      if (scale === 0) throw this.#unexpected(at);
      digits -= scale;
    }
    this.at = at;
    scale += this.#exponent();
    // Up to 15 digits and 10^22 both factors are exact, so one operation rounds once: the correct double.
    if (digits <= 15 && scale >= -22 && scale <= 22) {
      const power = POWERS[scale < 0 ? -scale : scale] as number;
      const value = scale < 0 ? mantissa / power : mantissa * power;
      return negative ? -value : value;
    }
    return Number(ascii.decode(bytes.subarray(from, this.at)));
  }

  /** Checks that nothing but white space follows, and that the text is valid UTF-8. */
  finish(): void {
    if (this.peek() !== -1) throw this.#unexpected();
    if (this.#notAscii) this.#decode(this.#start, this.#end);
  }

  #exponent(): number {
    const letter = this.at < this.#end ? this.#bytes[this.at] : undefined;
    if (letter !== 0x65 && letter !== 0x45) return 0;
    this.at++;
    const sign = this.at < this.#end ? this.#bytes[this.at] : undefined;
    if (sign === 0x2b || sign === MINUS) this.at++;
    const from = this.at;
    let exponent = 0;
    // Past a million the value is 0 or infinite anyway; the cap keeps the sum exact.
    for (let digit = this.#digit(); digit >= 0; digit = this.#digit()) {
      exponent = Math.min(exponent * 10 + digit, 1_000_000);
    }
    if (this.at === from) throw this.#unexpected();
    return sign === MINUS ? -exponent : exponent;
  }

  #digit(): number {
    if (this.at >= this.#end) return -1;
    const digit = (this.#bytes[this.at] as number) - 0x30;
    if (digit < 0 || digit > 9) return -1;
    this.at++;
    return digit;
  }

  /** Passes over a string. Returns whether it has an escape. */
  #skipString(): boolean {
    const bytes = this.#bytes, end = this.#end;
    let escaped = false;
    for (this.at++; this.at < end; this.at++) {
      const byte = bytes[this.at] as number;
      if (byte === QUOTE) {
        this.at++;
        return escaped;
      }
      if (byte === BACKSLASH) {
        escaped = true;
        this.at++;
        this.#skipEscape();
      } else if (byte < 0x20) {
        throw new JsonSyntaxError(`raw control character at byte ${this.#offset()}`);
      } else if (byte >= 0x80) {
        this.#notAscii = true;
      }
    }
    throw this.#unexpected();
  }

  /** Leaves the cursor at the last byte of the escape. */
  #skipEscape(): void {
    const byte = this.at < this.#end ? this.#bytes[this.at] as number : -1;
    if (byte === 0x75) {
      for (let i = 0; i < 4; i++) {
        this.at++;
        const hex = this.at < this.#end ? String.fromCharCode(this.#bytes[this.at] as number) : "";
        if (!/^[0-9a-fA-F]$/.test(hex)) throw this.#unexpected();
      }
      return;
    }
    // " \ / b f n r t
    const known = byte === QUOTE || byte === BACKSLASH || byte === 0x2f || byte === 0x62 || byte === 0x66 ||
      byte === 0x6e || byte === 0x72 || byte === 0x74;
    if (!known) throw this.#unexpected();
  }

  #skipWord(word: "true" | "false" | "null"): void {
    for (let i = 0; i < word.length; i++, this.at++) {
      if (this.at >= this.#end || this.#bytes[this.at] !== word.charCodeAt(i)) throw this.#unexpected();
    }
  }

  #take(byte: number): void {
    if (!this.#takeIf(byte)) throw this.#unexpected();
  }

  #takeIf(byte: number): boolean {
    if (this.peek() !== byte) return false;
    this.at++;
    return true;
  }

  #decode(from: number, to: number): string {
    try {
      return strictUtf8.decode(this.#bytes.subarray(from, to));
    } catch {
      throw new JsonSyntaxError("the text is not valid UTF-8");
    }
  }

  #offset(): number {
    return this.at - this.#start;
  }

  /** @param at where, when it is not the cursor's own place. */
  #unexpected(at = this.at): JsonSyntaxError {
    this.at = at;
    const what = this.at >= this.#end ? "unexpected end" : "unexpected character";
    return new JsonSyntaxError(`${what} at byte ${this.#offset()}`);
  }
}
