/** Round numbers for the side of a chart. */

/** From 0 up to at least `max`, in two to five steps of 1, 2 or 5 times a power of ten. */
export function ticks(max: number): number[] {
  if (!(max > 0)) return [0, 1];
  const rough = max / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough) ?? power * 10;
  const count = Math.ceil(max / step - 1e-9);
  return Array.from({ length: count + 1 }, (_, index) => Number((index * step).toPrecision(12)));
}

/** Which of `count` places get a label so that at most `most` do; the last one always does. */
export function labelled(count: number, most: number): number[] {
  if (count === 0 || most < 1) return [];
  const every = Math.max(1, Math.ceil(count / most));
  const places: number[] = [];
  for (let place = count - 1; place >= 0; place -= every) places.unshift(place);
  return places;
}
