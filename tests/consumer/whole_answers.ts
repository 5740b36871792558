/** Settlement messages, and answers of EnsureModelReady other than ready. */
export const ACK = "+ACK";
/** SIE_NAK_DELAY_S is 0.3 in these tests. */
export const NAK_BASE = '-NAK {"delay":300000000}';
export const NAK_HAND_OVER = '-NAK {"delay":100000000}';

export const STARTED = { state: "loading_started", batch_budget: null, descriptor: null };
export const LOADING = { state: "loading_in_progress", batch_budget: null, descriptor: null };
export const LATER = { state: "retry_later", batch_budget: null, descriptor: null };
export const FAILED = { state: "failed", batch_budget: null, descriptor: null };
