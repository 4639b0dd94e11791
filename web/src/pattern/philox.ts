/** Random bits from (seed, row): Philox4x32-10, the same numbers as edgewise.graphs.philox. */

const MASK = 0xffffffffn;

function philox(counter: [bigint, bigint, bigint, bigint], key: [bigint, bigint]): [bigint, bigint, bigint, bigint] {
  let [a, b, c, d] = counter;
  let [k, h] = key;
  for (let round = 0; round < 10; round++) {
    const left = a * 0xd2511f53n;
    const right = c * 0xcd9e8d57n;
    [a, b, c, d] = [(right >> 32n) ^ b ^ k, right & MASK, (left >> 32n) ^ d ^ h, left & MASK];
    k = (k + 0x9e3779b9n) & MASK;
    h = (h + 0xbb67ae85n) & MASK;
  }
  return [a, b, c, d];
}

/** 64 random bits for places 0 ≤ t < count of one row. */
export function words(seed: bigint, row: number, count: number, stream: number): bigint[] {
  const out: bigint[] = [];
  const at = BigInt(row);
  const key: [bigint, bigint] = [seed & MASK, (seed >> 32n) & MASK];
  for (let place = 0; out.length < count; place++) {
    const [a, b, c, d] = philox([BigInt(place), BigInt(stream), at & MASK, at >> 32n], key);
    out.push(a | (b << 32n), c | (d << 32n));
  }
  return out.slice(0, count);
}

/** `count` different numbers below `limit`, in no order (Floyd's sampling); -1 where there are none left. */
export function distinct(seed: bigint, row: number, count: number, limit: number, stream = 0): number[] {
  const bits = words(seed, row, count, stream);
  const chosen: number[] = [];
  for (let t = 0; t < count; t++) {
    if (limit < count) {
      chosen.push(t < limit ? t : -1);
      continue;
    }
    const top = limit - count + t;
    const drawn = Number((bits[t] * BigInt(top + 1)) >> 64n);
    chosen.push(chosen.includes(drawn) ? top : drawn);
  }
  return chosen;
}
