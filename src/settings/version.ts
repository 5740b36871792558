/** Version of the program, from the one place that names it. */
import config from "../../deno.json" with { type: "json" };

/** E.g. `0.1.0`. */
export const version: string = config.version;
