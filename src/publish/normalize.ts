/**
 * A vector divided by its L2 norm: squares summed in float64, the norm rounded to float32, the division in float32. A norm that is
 * not above 0 leaves the vector as it is (spec/preparation.md 8.1).
 */
export function normalized(values: Float32Array): Float32Array {
  let squares = 0;
  for (let i = 0; i < values.length; i++) squares += (values[i] as number) ** 2;
  const norm = Math.fround(Math.sqrt(squares));
  if (!(norm > 0)) return values;
  const result = new Float32Array(values.length);
  for (let i = 0; i < values.length; i++) result[i] = (values[i] as number) / norm;
  return result;
}
