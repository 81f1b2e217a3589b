// The cells of an LSTM step in training: gates to cells, and their gradients back.
#pragma once
#include "lanes.h"

namespace elmo {

struct Cell {
  Floats i, j, f, o;  // after their activation functions
  Floats c, m;        // the cell after its clip, and sigmoid(o) tanh(c)
};

// The step from the sums of the gates. Two gates share a division, which costs as much as an exponential.
ELMO_INLINE Cell cell_forward(Floats i, Floats j, Floats f, Floats o, Floats before, float cell_clip) {
  const Floats one = all(1.0f);
  const Floats a = add(one, exp2(mul(all(-LOG2_E), i)));  // sigmoid(i) = 1 / a
  const Floats b = add(one, exp2(mul(all(-LOG2_E), f)));
  const Floats d = add(one, exp2(mul(all(-LOG2_E), o)));
  const Floats e = exp2(mul(all(2 * LOG2_E), j));  // tanh(j) = (e - 1) / (e + 1)
  const Floats q = add(e, one);
  const Floats ab = div(one, mul(a, b)), dq = div(one, mul(d, q));  // each factor is below 2^41: no overflow
  Cell cell;
  cell.i = mul(b, ab);
  cell.f = mul(a, ab);
  cell.o = mul(q, dq);
  cell.j = mul(mul(sub(e, one), d), dq);
  cell.c = clip(fma(cell.f, before, mul(cell.i, cell.j)), cell_clip);
  cell.m = mul(cell.o, tanh(cell.c));
  return cell;
}

struct CellGradient {
  Floats i, j, f, o;  // of the sums of the gates
  Floats before;      // of the cell before the step
};

// dm is the gradient of m, dc that of the cell from the next step. A clipped cell passes no gradient.
ELMO_INLINE CellGradient cell_backward(const Cell& cell, Floats before, Floats dm, Floats dc, float cell_clip) {
  const Floats one = all(1.0f);
  const Floats t = tanh(cell.c);
  CellGradient d;
  d.o = mul(mul(dm, t), mul(cell.o, sub(one, cell.o)));
  dc = fma(mul(dm, cell.o), sub(one, mul(t, t)), dc);
  dc = zero_unless_below(absolute(cell.c), all(cell_clip), dc);
  d.i = mul(mul(dc, cell.j), mul(cell.i, sub(one, cell.i)));
  d.j = mul(mul(dc, cell.i), sub(one, mul(cell.j, cell.j)));
  d.f = mul(mul(dc, before), mul(cell.f, sub(one, cell.f)));
  d.before = mul(dc, cell.f);
  return d;
}

}  // namespace elmo
