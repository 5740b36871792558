/** Lengths of MessagePack values in their shortest forms, in bytes: what a header must announce before its content is written. */

/** Length of a non-negative integer of at most 53 bits. */
export function unsignedLength(value: number): number {
  if (value < 0x80) return 1;
  if (value < 0x100) return 2;
  if (value < 0x10000) return 3;
  return value < 0x100000000 ? 5 : 9;
}

/** Length of a bin of `content` bytes, header included. */
export function binLength(content: number): number {
  return content + (content < 0x100 ? 2 : content < 0x10000 ? 3 : 5);
}

/** Length of a str of `content` UTF-8 bytes, header included. */
export function strLength(content: number): number {
  return content + (content < 0x20 ? 1 : content < 0x100 ? 2 : content < 0x10000 ? 3 : 5);
}

/** Length of an array header. */
export function arrayHeaderLength(count: number): number {
  return count < 0x10 ? 1 : count < 0x10000 ? 3 : 5;
}

/** Number of UTF-8 bytes of a text without lone surrogates. */
export function utf8Length(text: string): number {
  let length = text.length;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit < 0x80) continue;
    // The two halves of a surrogate pair make four bytes together: two each.
    length += unit < 0x800 || (unit >= 0xd800 && unit < 0xe000) ? 1 : 2;
  }
  return length;
}
