/**
 * Runs the work once per drawn frame however often it is asked for. A hidden page draws no frames, but its title and
 * badge must still be right: there a timer does it.
 */
export function coalesced(work: () => void): () => void {
  let isAsked = false;
  const run = (): void => {
    if (!isAsked) return;
    isAsked = false;
    work();
  };
  // A page that is hidden before its frame comes would wait for ever.
  document.addEventListener("visibilitychange", run);
  return () => {
    if (isAsked) return;
    isAsked = true;
    if (document.hidden) setTimeout(run, 100);
    else requestAnimationFrame(run);
  };
}
