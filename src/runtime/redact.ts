/** Keeps secrets out of logs and messages. */

/**
 * A URL, or a comma list of URLs, without user info and query: `nats://<redacted>@host:4222`. Works on text, not on parsed
 * URLs: what no parser would take may hold a secret too. When in doubt it hides too much.
 */
export function redactUrl(text: string): string {
  return text.split(/(?<=^|,\s*)(?=[A-Za-z][A-Za-z0-9+.-]*:\/\/)/).map(redactOne).join("");
}

function redactOne(text: string): string {
  const scheme = /^[A-Za-z][A-Za-z0-9+.-]*:\/\//.exec(text)?.[0] ?? "";
  const query = text.indexOf("?");
  const shown = query < 0 ? text : `${text.slice(0, query)}?<redacted>`;
  const at = text.lastIndexOf("@");
  // In these two schemes the part before the `@` names a container.
  if (at < 0 || /^abfss?:/i.test(scheme)) return shown;
  // A `?` before the `@` is part of a password, not the start of a query.
  return `${scheme}<redacted>${(query > at ? shown : text).slice(at)}`;
}

/** Scheme, host and port of a URL, nothing else of it; `<redacted>` when it cannot be parsed. */
export function urlOrigin(text: string): string {
  try {
    const url = new URL(text);
    return url.host === "" ? "<redacted>" : `${url.protocol}//${url.host}`;
  } catch {
    return "<redacted>";
  }
}
