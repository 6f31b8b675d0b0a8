/** What is known of the versions of sessions. */
export class Versions {
  /** The newest version seen of each session. */
  readonly newest = new Map<string, number>();
  /** Sessions of which this connection has told a version. */
  readonly #fresh = new Set<string>();

  /**
   * A version that the server told. What is replayed was true once and never lowers anything. Otherwise a lower one is
   * believed only the first time on a connection: the session may have been made anew while this client was away.
   */
  see(sessionId: string, told: { sessionVersion?: number; replayed?: boolean }): void {
    const version = told.sessionVersion;
    if (version === undefined) return;
    const isFirst = !told.replayed && !this.#fresh.has(sessionId);
    if (!told.replayed) this.#fresh.add(sessionId);
    if (isFirst || version > (this.newest.get(sessionId) ?? -1)) this.newest.set(sessionId, version);
  }

  /** The session is gone, or new. */
  forget(sessionId: string): void {
    this.newest.delete(sessionId);
    this.#fresh.delete(sessionId);
  }

  /** A new connection: sessions may have been made anew meanwhile. */
  connected(): void {
    this.#fresh.clear();
  }
}
