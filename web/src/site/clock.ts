// What time it is where the times on these pages come from: a reader's clock may be off by hours.

/** By so much the server's clock is ahead. */
let aheadMs = 0;

/** By the server's clock. */
export function now(): number {
  return Date.now() + aheadMs;
}

/** date: of an answer's head, in whole seconds. askedMs: when it was asked for. A clock that may be right is taken for right. */
export function setClock(date: string | null, askedMs: number): void {
  const saidMs = Date.parse(date ?? "");
  if (Number.isNaN(saidMs)) return;
  aheadMs = Math.max(saidMs - Date.now(), Math.min(0, saidMs + 1000 - askedMs));
}
