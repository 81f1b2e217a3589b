// Arithmetic on vectors: the mix of layers, cosines, the two principal components, and groups of similar vectors.

/** Shares that add up to 1; weights that are all zero count as equal. */
export function shares(weights) {
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return weights.map((weight) => (total > 0 ? weight / total : 1 / weights.length));
}

/** gamma * (the sum of each layer's vector times its share), as ELMo's scalar mix. */
export function mix(layers, weights, gamma) {
  const parts = shares(weights);
  const result = new Float32Array(layers[0].length);
  layers.forEach((vector, layer) => {
    const factor = gamma * parts[layer];
    if (factor !== 0) for (let i = 0; i < result.length; i++) result[i] += factor * vector[i];
  });
  return result;
}

export function dot(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

export const length = (vector) => Math.sqrt(dot(vector, vector));

/** The cosine of two vectors; 0 if one of them has no length. */
export function cosine(a, b) {
  const product = length(a) * length(b);
  return product > 0 ? dot(a, b) / product : 0;
}

function unit(vector) {
  const size = length(vector) || 1;
  return vector.map((value) => value / size);
}

/**
 * All vectors on the plane in which the first `numFit` of them differ most, as [x, y] with the mean at (0, 0).
 * Vectors that are equal up to rounding get the same point.
 */
export function principalPlane(vectors, numFit = vectors.length) {
  const fitted = vectors.slice(0, numFit);
  const mean = new Float64Array(vectors[0].length);
  for (const vector of fitted) for (let i = 0; i < mean.length; i++) mean[i] += vector[i] / fitted.length;
  const centred = vectors.map((vector) => Float64Array.from(vector, (value, i) => value - mean[i]));
  const size = Math.max(...fitted.map(length));
  const gram = fitted.map((_, row) => fitted.map((_, column) => dot(centred[row], centred[column])));
  const axes = topEigenvectors(gram, 2).map(({ value, vector }) => {
    const axis = new Float64Array(mean.length);
    if (value <= 1e-8 * size * size) return axis; // nothing differs in this direction
    const scale = 1 / Math.sqrt(value);
    vector.forEach((part, row) => {
      for (let i = 0; i < axis.length; i++) axis[i] += scale * part * centred[row][i];
    });
    return axis;
  });
  return centred.map((vector) => [dot(vector, axes[0]), axes[1] ? dot(vector, axes[1]) : 0]);
}

/** The eigenvectors of a symmetric matrix with the largest eigenvalues, by Jacobi rotations. */
function topEigenvectors(matrix, count) {
  const n = matrix.length;
  const a = matrix.map((row) => Float64Array.from(row));
  const v = a.map((_, i) => Float64Array.from({ length: n }, (_, j) => Number(i === j)));
  for (let sweep = 0; sweep < 30; sweep++) {
    let off = 0, diagonal = 0;
    for (let i = 0; i < n; i++) {
      diagonal += a[i][i] ** 2;
      for (let j = i + 1; j < n; j++) off += a[i][j] ** 2;
    }
    if (off <= 1e-18 * diagonal) break;
    for (let p = 0; p < n; p++) for (let q = p + 1; q < n; q++) rotate(a, v, p, q);
  }
  return Array.from({ length: n }, (_, i) => ({ value: a[i][i], vector: v.map((row) => row[i]) }))
    .sort((one, other) => other.value - one.value).slice(0, count);
}

function rotate(a, v, p, q) {
  if (a[p][q] === 0) return;
  const theta = (a[q][q] - a[p][p]) / (2 * a[p][q]);
  const t = (theta >= 0 ? 1 : -1) / (Math.abs(theta) + Math.sqrt(theta * theta + 1));
  const c = 1 / Math.sqrt(t * t + 1), s = t * c;
  for (let k = 0; k < a.length; k++) {
    [a[k][p], a[k][q]] = [c * a[k][p] - s * a[k][q], s * a[k][p] + c * a[k][q]];
  }
  for (let k = 0; k < a.length; k++) {
    [a[p][k], a[q][k]] = [c * a[p][k] - s * a[q][k], s * a[p][k] + c * a[q][k]];
    [v[k][p], v[k][q]] = [c * v[k][p] - s * v[k][q], s * v[k][p] + c * v[k][q]];
  }
}

/** The points turned, and mirrored if need be, to lie as near as possible to the points of a reference. */
export function align(points, reference) {
  let best = null;
  for (const mirror of [1, -1]) {
    let along = 0, across = 0;
    points.forEach(([x, y], i) => {
      along += x * reference[i][0] + mirror * y * reference[i][1];
      across += x * reference[i][1] - mirror * y * reference[i][0];
    });
    const fit = Math.hypot(along, across);
    if (best === null || fit > best.fit) best = { fit, mirror, angle: Math.atan2(across, along) };
  }
  const c = Math.cos(best.angle), s = Math.sin(best.angle);
  return points.map(([x, y]) => [c * x - s * best.mirror * y, s * x + c * best.mirror * y]);
}

/**
 * A group number for each vector: two or three groups by k-means on directions, or one group if no split is clear.
 * The first `numFit` vectors make the groups and the others join the nearest; the first vector is in group 0.
 */
export function findGroups(vectors, numFit, minSilhouette) {
  const units = vectors.map(unit);
  const fitted = units.slice(0, numFit);
  const none = units.map(() => 0);
  if (fitted.length < 3) return none;
  let best = { silhouette: minSilhouette, centres: null };
  for (const k of [2, 3].filter((count) => count < fitted.length - 1)) {
    const { labels, centres } = kMeans(fitted, k);
    // three groups must be clearly better than two: with few uses, more groups fit by chance
    const silhouette = meanSilhouette(fitted, labels) - (k === 3 ? 0.05 : 0);
    if (silhouette > best.silhouette) best = { silhouette, centres };
  }
  if (best.centres === null) return none;
  const labels = units.map((vector) => nearest(vector, best.centres));
  const order = [...new Set(labels)]; // groups are numbered by their first use
  return labels.map((label) => order.indexOf(label));
}

function kMeans(units, k) {
  let best = null;
  for (let start = 0; start < units.length; start++) {
    let centres = [units[start]];
    while (centres.length < k) {
      const closeness = units.map((vector) => Math.max(...centres.map((centre) => dot(vector, centre))));
      centres.push(units[closeness.indexOf(Math.min(...closeness))]);
    }
    let labels = [];
    for (let step = 0; step < 50; step++) {
      const next = units.map((vector) => nearest(vector, centres));
      if (next.every((label, i) => label === labels[i])) break;
      labels = next;
      centres = centres.map((centre, number) => {
        const members = units.filter((_, i) => labels[i] === number);
        return members.length ? unit(members.reduce((sum, one) => sum.map((value, i) => value + one[i]))) : centre;
      });
    }
    const fit = units.reduce((sum, vector, i) => sum + dot(vector, centres[labels[i]]), 0);
    if (best === null || fit > best.fit + 1e-9) best = { fit, labels, centres };
  }
  return best;
}

function nearest(vector, centres) {
  const closeness = centres.map((centre) => dot(vector, centre));
  return closeness.indexOf(Math.max(...closeness));
}

/** The mean silhouette in cosine distance, from -1 to 1; a vector that is alone in its group counts 0. */
function meanSilhouette(units, labels) {
  const distances = units.map((one) => units.map((other) => 1 - dot(one, other)));
  const scores = units.map((_, i) => {
    const sums = new Map();
    labels.forEach((label, j) => {
      if (i === j) return;
      const [sum, count] = sums.get(label) ?? [0, 0];
      sums.set(label, [sum + distances[i][j], count + 1]);
    });
    const means = new Map([...sums].map(([label, [sum, count]]) => [label, sum / count]));
    if (!means.has(labels[i])) return 0;
    const own = means.get(labels[i]);
    means.delete(labels[i]);
    const other = Math.min(...means.values());
    return Number.isFinite(other) && Math.max(own, other) > 1e-9 ? (other - own) / Math.max(own, other) : 0;
  });
  return scores.reduce((sum, score) => sum + score, 0) / scores.length;
}
