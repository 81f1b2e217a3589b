// Projected LSTM stacks in training: all layers and directions over rows of running text, forward and backward.
//
// Rows are independent of each other until the gradients of the weights, so a job computes all steps and layers of one
// direction and one group of rows without waiting for another job. The gradients of the weights are products over all
// tokens; they follow when the steps are done, divided by columns. A token n = t * B + b is row b at step t.
//
// Gates and their gradients share one array (panels, tokens, PANEL), in which a panel holds the four gates of LANES cells.
// It is the packed right operand of the kernel's gradient and, panel by panel, the left operand of the gradients of the
// inputs, so nothing is copied between the products.
#pragma once
#include <memory>

#include "products.h"
#include "threads.h"
#include "train_cells.h"

namespace elmo {

struct StackCall {
  int64_t num_directions, num_layers, num_steps, num_rows, proj_dim, cell_dim, dtype;
  float cell_clip, proj_clip, forget_bias;
  int64_t skip;
  const float* const* kernels;      // (R * L) matrices (2P, 4H)
  const float* const* biases;       // (R * L) vectors (4H)
  const float* const* projections;  // (R * L) matrices (H, P)
  const float* x;                   // (R, T, B, P)
  const uint8_t* resets;            // (R, T, B), 1: the state is zero before the step; null: never
  const float* dropout;             // (R, L - 1, T, B, P), factors of the inputs of the upper layers; null: none
  const float *initial_h, *initial_c;  // (R, L, B, P), (R, L, B, H)
  float* layers;                       // (R, L, T, B, P)
  float *final_h, *final_c;            // as initial_h and initial_c

  const float* d_layers;      // (R, L, T, B, P)
  float* d_x;                 // (R, T, B, P)
  float* const* d_kernels;    // as kernels
  float* const* d_biases;
  float* const* d_projections;
  int64_t num_threads;
};

// What the backward pass needs from the forward pass of one layer and direction.
struct LayerTape {
  Array<float> inputs, before, hidden;  // (tokens, W): input after dropout, h before and after the step
  Array<float> gates;                   // (panels, tokens, PANEL): activations, then gradients of the sums
  Array<float> cells;                   // (panels, B + tokens, LANES): c before the first step, then after each
  Array<float> cell_out;                // (tokens, S): what is projected
  Array<float> d_hidden;                // (W / PANEL, tokens, PANEL)
  Array<Word> kernel, projection;       // packed for the forward pass
  Array<Word> kernel_t, projection_t;   // transposed, for the backward pass
  Array<Word> input_words, before_words, d_hidden_words;  // bfloat16: operands of the weights' gradients
  Array<float> bias;                                      // (panels, PANEL), with the forget bias
};

template <class D>
class TrainStacks {
 public:
  explicit TrainStacks(const StackCall& shape)
      : R_(shape.num_directions), L_(shape.num_layers), P_(shape.proj_dim), H_(shape.cell_dim), W_(round_up(P_, 64)),
        S_(round_up(H_, 64) + ROW_GAP), panels_(round_up(H_, LANES) / LANES), p_steps_(steps_of<D>(P_)) {
    for (long i = 0; i < R_ * L_; i++) {
      tapes_.emplace_back(new LayerTape);
      LayerTape& tape = *tapes_.back();
      tape.kernel.resize(panels_ * 2 * p_steps_ * PANEL);
      tape.kernel_t.resize(panels_ * PANEL / D::PER_WORD * 2 * W_);
      tape.projection.resize(steps_of<D>(H_) * W_);
      tape.projection_t.resize(p_steps_ * round_up(H_, PANEL));
      tape.bias.resize(panels_ * PANEL);
    }
  }

  int forward(const StackCall& call) {
    if (!has_sizes_of(call)) return OUT_OF_RANGE;
    if (!fits(call)) return OUT_OF_MEMORY;
    reserve(call.num_steps, call.num_rows);
    const int status = run_all(R_ * L_, call.num_threads, nullptr, [&](long i) -> int {
      pack_forward(call, i);
      return OK;
    });
    return status != OK ? status : for_rows(call, [&](long r, long first, long last) { forward_rows(call, r, first, last); });
  }

  int backward(const StackCall& call) {
    if (!has_sizes_of(call) || call.num_steps != T_ || call.num_rows != B_) return OUT_OF_RANGE;
    int status = run_all(R_ * L_, call.num_threads, nullptr, [&](long i) -> int {
      pack_backward(call, i);
      return OK;
    });
    if (status == OK)
      status = for_rows(call, [&](long r, long first, long last) { backward_rows(call, r, first, last); });
    if (status == OK && D::PER_WORD > 1)
      status = run_all(R_ * L_, call.num_threads, nullptr, [&](long i) -> int {
        pack_tokens(*tapes_[i]);
        return OK;
      });
    if (status != OK) return status;
    const long columns = (panels_ + PANELS_PER_PIECE - 1) / PANELS_PER_PIECE, cells = (H_ + CELLS_PER_PIECE - 1) / CELLS_PER_PIECE;
    return run_all(R_ * L_ * (columns + cells), call.num_threads, nullptr, [&](long job) -> int {
      const long i = job / (columns + cells), piece = job % (columns + cells);
      if (piece < columns) kernel_gradient(call, i, piece * PANELS_PER_PIECE);
      else projection_gradient(call, i, (piece - columns) * CELLS_PER_PIECE);
      return OK;
    });
  }

 private:
  static constexpr long PANELS_PER_PIECE = 4, CELLS_PER_PIECE = 96, ROWS_PER_JOB = 12;

  // Whether the call is for stacks of the sizes that this object was made for.
  bool has_sizes_of(const StackCall& call) const {
    return call.num_directions == R_ && call.num_layers == L_ && call.proj_dim == P_ && call.cell_dim == H_;
  }

  // Whether `long` can count every array of the tokens of a call.
  bool fits(const StackCall& call) const {
    const int64_t T = call.num_steps, B = call.num_rows;
    return countable({panels_ * PANEL + W_, T + 1, B}) && countable({R_, W_, T, B}) && countable({R_, L_, T, B, P_}) &&
           countable({R_, L_, B, H_});
  }

  // Memory for T steps of B rows. Rows keep their padding, which is zero, when the shape changes.
  void reserve(long T, long B) {
    T_ = T, B_ = B, N_ = T_ * B_;
    for (const auto& each : tapes_) {
      LayerTape& tape = *each;
      for (auto* rows : {&tape.inputs, &tape.before, &tape.hidden, &tape.d_hidden}) rows->grow(N_ * W_);
      tape.gates.grow(panels_ * N_ * PANEL);
      tape.cells.grow(panels_ * (B_ + N_) * LANES);
      tape.cell_out.grow(N_ * S_);
      if (D::PER_WORD > 1)
        for (auto* words : {&tape.input_words, &tape.before_words, &tape.d_hidden_words}) words->grow(token_steps() * W_);
    }
    d_above_.grow(R_ * N_ * W_);
  }

  long token_steps() const { return steps_of<D>(N_); }
  bool is_reset(const StackCall& call, long r, long n) const { return call.resets && call.resets[r * N_ + n]; }

  // Calls work(direction, first row, last row) for groups of rows that together are all rows of all directions.
  template <class Work>
  int for_rows(const StackCall& call, Work work) {
    const long threads = std::max<int64_t>(1, call.num_threads);
    const long wanted = threads % R_ ? threads : threads / R_;
    const long groups = std::max<long>(1, std::min(wanted, B_ / ROWS_PER_JOB));
    return run_all(R_ * groups, threads, nullptr, [&](long job) -> int {
      const long r = job % R_, g = job / R_;
      work(r, g * B_ / groups, (g + 1) * B_ / groups);
      return OK;
    });
  }

  // The kernel (2P, 4H) as panels with the four gates of LANES cells: first the steps of the input, then of h.
  void pack_forward(const StackCall& call, long i) {
    LayerTape& tape = *tapes_[i];
    for (long p = 0; p < panels_; p++)
      for (long g = 0; g < 4; g++) {
        const long cell = p * LANES, count = std::min<long>(LANES, H_ - cell);
        for (long half = 0; half < 2; half++)
          for (long k = 0; k < P_; k += D::PER_WORD) {
            const float* a = call.kernels[i] + (half * P_ + k) * 4 * H_ + g * H_ + cell;
            const float* b = D::PER_WORD > 1 && k + 1 < P_ ? a + 4 * H_ : nullptr;
            Word* to = tape.kernel.data() + ((p * 2 + half) * p_steps_ + k / D::PER_WORD) * PANEL + g * LANES;
            if (count == LANES) pair_rows<D>(a, b, to);
            else pair_few<D>(a, b, count, to);
          }
        float* bias = tape.bias.data() + p * PANEL + g * LANES;
        for (long c = 0; c < count; c++) bias[c] = call.biases[i][g * H_ + cell + c] + (g == 2 ? call.forget_bias : 0.0f);
      }
    pack_rows<D>(call.projections[i], P_, H_, P_, tape.projection.data(), 0, W_ / PANEL);
  }

  // The transposes: gates to inputs and h (the columns W_ to 2 W_), and h to cells.
  void pack_backward(const StackCall& call, long i) {
    LayerTape& tape = *tapes_[i];
    const long panel_words = panels_ * PANEL / D::PER_WORD * PANEL;
    for (long half = 0; half < 2; half++)
      for (long p = 0; p < panels_; p++)
        for (long g = 0; g < 4; g++) {
          const long cell = p * LANES, count = std::min<long>(LANES, H_ - cell);
          Word* to = tape.kernel_t.data() + half * (W_ / PANEL) * panel_words + (p * PANEL + g * LANES) / D::PER_WORD * PANEL;
          const float* from = call.kernels[i] + half * P_ * 4 * H_ + g * H_ + cell;
          pack_columns<D>([&](long n) { return from + n * 4 * H_; }, count, P_, to, 0, W_ / PANEL, panel_words);
        }
    pack_columns<D>([&](long n) { return call.projections[i] + n * P_; }, P_, H_, tape.projection_t.data(), 0,
                    panels_of(H_), p_steps_ * PANEL);
  }

  struct Scratch {
    Scratch(long rows, long W, long S, long panels)
        : h(rows * 2 * W), x_words(rows * (W + ROW_GAP)), h_words(rows * (W + ROW_GAP)), cell_words(rows * (S + ROW_GAP)),
          gate_words(rows * 4 * PANEL), dc(panels * rows * LANES) {}
    Array<float> h;  // (rows, W) of a projection, or (rows, 2W): gradients of the inputs and of h
    Array<Word> x_words, h_words, cell_words, gate_words;
    Array<float> dc;  // (panels, rows, LANES)
  };

  // Rows of floats as a left operand: themselves, or their words.
  Left as_left(const float* matrix, long stride, long inputs, long rows, Array<Word>& words) const {
    if constexpr (D::PER_WORD == 1) return rows_of(matrix, stride);
    const long word_stride = round_up(inputs, 64) / D::PER_WORD + ROW_GAP;
    for (long r = 0; r < rows; r++) D::convert(matrix + r * stride, inputs, words.data() + r * word_stride);
    return {words.data(), word_stride, 1};
  }

  void forward_rows(const StackCall& call, long r, long first, long last) {
    Scratch scratch(last - first, W_, S_, 0);
    for (long l = 0; l < L_; l++) {
      read_inputs(call, r, l, first, last);
      begin(call, r, l, first, last);
      for (long t = 0; t < T_; t++) forward_step(call, r, l, t, first, last, scratch);
    }
  }

  void read_inputs(const StackCall& call, long r, long l, long first, long last) {
    LayerTape& tape = *tapes_[r * L_ + l];
    for (long t = 0; t < T_; t++)
      for (long n = t * B_ + first; n < t * B_ + last; n++) {
        const float* from = l == 0 ? call.x + (r * N_ + n) * P_ : call.layers + ((r * L_ + l - 1) * N_ + n) * P_;
        const float* factor = l > 0 && call.dropout ? call.dropout + ((r * (L_ - 1) + l - 1) * N_ + n) * P_ : nullptr;
        float* to = tape.inputs.data() + n * W_;
        for (long k = 0; k < P_; k++) to[k] = factor ? from[k] * factor[k] : from[k];
      }
  }

  void begin(const StackCall& call, long r, long l, long first, long last) {
    LayerTape& tape = *tapes_[r * L_ + l];
    for (long b = first; b < last; b++) {
      const long at = (r * L_ + l) * B_ + b;
      for (long i = 0; i < panels_ * LANES; i++)
        tape.cells[((i / LANES) * (B_ + N_) + b) * LANES + i % LANES] = i < H_ ? call.initial_c[at * H_ + i] : 0.0f;
      set_before(call, r, b, call.initial_h + at * P_, tape);
    }
  }

  // h before the step of token n; zero if the state is reset there.
  void set_before(const StackCall& call, long r, long n, const float* h, LayerTape& tape) {
    float* to = tape.before.data() + n * W_;
    if (is_reset(call, r, n)) std::memset(to, 0, P_ * sizeof(float));
    else std::memcpy(to, h, P_ * sizeof(float));
  }

  void forward_step(const StackCall& call, long r, long l, long t, long first, long last, Scratch& scratch) {
    LayerTape& tape = *tapes_[r * L_ + l];
    const long rows = last - first, n = t * B_ + first;
    const Left x = as_left(tape.inputs.data() + n * W_, W_, P_, rows, scratch.x_words);
    const Left h = as_left(tape.before.data() + n * W_, W_, P_, rows, scratch.h_words);
    for (long p = 0; p < panels_; p++) {
      const Word* panel = tape.kernel.data() + p * 2 * p_steps_ * PANEL;
      in_tiles(0, rows, [&](auto count, long row) __attribute__((always_inline)) {
        constexpr int ROWS = decltype(count)::value;
        typename D::Sum sums[ROWS][4];
        clear<D, ROWS>(sums);
        multiply<D, ROWS>(x.at(row, 0), x.row_stride, panel, p_steps_, sums);
        multiply<D, ROWS>(h.at(row, 0), h.row_stride, panel + p_steps_ * PANEL, p_steps_, sums);
        float* gates = tape.gates.data() + (p * N_ + n + row) * PANEL;
        store_sums<D, ROWS>(gates, PANEL, sums);
        finish_cells(call, r, tape, p, n + row, ROWS);
      });
    }
    const Left cells = as_left(tape.cell_out.data() + n * S_, S_, H_, rows, scratch.cell_words);
    const long steps = steps_of<D>(H_);
    gemm<D>(cells, 0, rows, {tape.projection.data(), steps * PANEL}, 0, W_ / PANEL, steps, scratch.h.data(), W_, PANEL, false);
    for (long b = 0; b < rows; b++) end_step(call, r, l, t, n + b, scratch.h.data() + b * W_, tape);
  }

  // Separate from the product, because otherwise the compiler keeps the sums in memory during the product, too.
  __attribute__((noinline)) void finish_cells(const StackCall& call, long r, LayerTape& tape, long p, long n, long rows) {
    const float* bias = tape.bias.data() + p * PANEL;
    for (long i = n; i < n + rows; i++) {
      float* gates = tape.gates.data() + (p * N_ + i) * PANEL;
      float* c = tape.cells.data() + (p * (B_ + N_) + i) * LANES;
      Floats sums[4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; j++) sums[j] = add(load(gates + j * LANES), load(bias + j * LANES));
      const Floats before = is_reset(call, r, i) ? all(0.0f) : load(c);
      const Cell cell = cell_forward(sums[0], sums[1], sums[2], sums[3], before, call.cell_clip);
      store(gates, cell.i);
      store(gates + LANES, cell.j);
      store(gates + 2 * LANES, cell.f);
      store(gates + 3 * LANES, cell.o);
      store(c + B_ * LANES, cell.c);
      store(tape.cell_out.data() + i * S_ + p * LANES, cell.m);
    }
  }

  // The clip of the new h (W floats), the output of the layer, and the state for the next step or the caller.
  void end_step(const StackCall& call, long r, long l, long t, long n, const float* projected, LayerTape& tape) {
    float* h = tape.hidden.data() + n * W_;
    for (long k = 0; k < W_; k += LANES) store(h + k, clip(load(projected + k), call.proj_clip));
    float* out = call.layers + ((r * L_ + l) * N_ + n) * P_;
    const float* input = tape.inputs.data() + n * W_;
    for (long k = 0; k < P_; k++) out[k] = call.skip && l > 0 ? h[k] + input[k] : h[k];
    if (t + 1 < T_) {
      set_before(call, r, n + B_, h, tape);
      return;
    }
    const long at = (r * L_ + l) * B_ + n - t * B_;
    std::memcpy(call.final_h + at * P_, h, P_ * sizeof(float));
    for (long i = 0; i < H_; i++)
      call.final_c[at * H_ + i] = tape.cells[((i / LANES) * (B_ + N_) + n + B_) * LANES + i % LANES];
  }

  void backward_rows(const StackCall& call, long r, long first, long last) {
    Scratch scratch(last - first, W_, S_, panels_);
    for (long t = 0; t < T_; t++)
      std::memset(d_above(r, t * B_ + first), 0, (last - first) * W_ * sizeof(float));
    for (long l = L_ - 1; l >= 0; l--) {
      std::memset(scratch.dc.data(), 0, scratch.dc.size() * sizeof(float));
      for (long t = T_ - 1; t >= 0; t--) backward_step(call, r, l, t, first, last, scratch);
    }
    for (long t = 0; t < T_; t++)
      for (long n = t * B_ + first; n < t * B_ + last; n++)
        std::memcpy(call.d_x + (r * N_ + n) * P_, d_above(r, n), P_ * sizeof(float));
  }

  float* d_above(long r, long n) { return d_above_.data() + (r * N_ + n) * W_; }

  void backward_step(const StackCall& call, long r, long l, long t, long first, long last, Scratch& scratch) {
    LayerTape& tape = *tapes_[r * L_ + l];
    const long rows = last - first, n = t * B_ + first, W = W_;
    for (long b = 0; b < rows; b++) {
      const float* from_next = t + 1 < T_ && !is_reset(call, r, n + b + B_) ? scratch.h.data() + b * 2 * W + W : nullptr;
      gradient_of_hidden(call, r, l, n + b, from_next, tape);
    }
    const Left d_hidden = hidden_gradients(tape, n, rows, scratch);
    const long cell_panels = panels_of(H_), gate_steps = PANEL / D::PER_WORD;
    const Right kernel{tape.kernel_t.data(), panels_ * gate_steps * PANEL};
    for (long q = 0; q < cell_panels; q++) {
      in_tiles(0, rows, [&](auto count, long row) __attribute__((always_inline)) {
        constexpr int ROWS = decltype(count)::value;
        typename D::Sum sums[ROWS][4];
        clear<D, ROWS>(sums);
        multiply_chunks<D, ROWS>(d_hidden, row, tape.projection_t.data() + q * p_steps_ * PANEL, 0, p_steps_, sums);
        alignas(64) float stored[ROWS][PANEL];
        store_sums<D, ROWS>(&stored[0][0], PANEL, sums);
        finish_gradients(call, r, tape, q, row, n, ROWS, rows, &stored[0][0], scratch);
      });
      const long begin = 4 * q, end = std::min(panels_, begin + 4);
      const Left gates = gate_gradients(tape, begin, end, n, rows, scratch);
      gemm<D>(gates, 0, rows, {kernel.at(0, begin * gate_steps), kernel.panel_stride}, 0, 2 * W / PANEL,
              (end - begin) * gate_steps, scratch.h.data(), 2 * W, PANEL, q > 0);
    }
    for (long b = 0; b < rows; b++) pass_below(call, r, l, n + b, scratch.h.data() + b * 2 * W);
  }

  // The gradient of h of token n, from the output and from the next step, zero where h was clipped.
  void gradient_of_hidden(const StackCall& call, long r, long l, long n, const float* from_next, LayerTape& tape) {
    float* above = d_above(r, n);
    const float* d_output = call.d_layers + ((r * L_ + l) * N_ + n) * P_;
    for (long k = 0; k < P_; k++) above[k] += d_output[k];
    const float* h = tape.hidden.data() + n * W_;
    for (long k = 0; k < W_; k += LANES) {
      const Floats d = from_next ? add(load(above + k), load(from_next + k)) : load(above + k);
      float* to = tape.d_hidden.data() + (k / PANEL * N_ + n) * PANEL + k % PANEL;
      store(to, zero_unless_below(absolute(load(h + k)), all(call.proj_clip), d));
    }
  }

  Left hidden_gradients(LayerTape& tape, long n, long rows, Scratch& scratch) const {
    const float* from = tape.d_hidden.data() + n * PANEL;
    if constexpr (D::PER_WORD == 1) return {reinterpret_cast<const Word*>(from), PANEL, 1, PANEL, N_ * PANEL};
    const long stride = W_ / D::PER_WORD + ROW_GAP;
    for (long b = 0; b < rows; b++)
      for (long q = 0; q < W_ / PANEL; q++)
        D::convert(from + (q * N_ + b) * PANEL, PANEL, scratch.h_words.data() + b * stride + q * PANEL / D::PER_WORD);
    return {scratch.h_words.data(), stride, 1};
  }

  Left gate_gradients(LayerTape& tape, long begin, long end, long n, long rows, Scratch& scratch) const {
    const float* from = tape.gates.data() + (begin * N_ + n) * PANEL;
    if constexpr (D::PER_WORD == 1) return {reinterpret_cast<const Word*>(from), PANEL, 1, PANEL, N_ * PANEL};
    constexpr long WORDS = PANEL / D::PER_WORD;
    for (long p = 0; p < end - begin; p++)
      for (long b = 0; b < rows; b++)
        D::convert(from + (p * N_ + b) * PANEL, PANEL, scratch.gate_words.data() + (p * rows + b) * WORDS);
    return {scratch.gate_words.data(), WORDS, 1, WORDS, rows * WORDS};
  }

  // The gradients of the gates of PANEL cells for `count` rows, from the gradients `dm` (count, PANEL) of what is projected.
  __attribute__((noinline)) void finish_gradients(const StackCall& call, long r, LayerTape& tape, long q, long row, long n,
                                                  long count, long rows, const float* dm, Scratch& scratch) {
    for (long p = 4 * q; p < std::min(panels_, 4 * q + 4); p++)
      for (long i = 0; i < count; i++) {
        const long token = n + row + i;
        float* gates = tape.gates.data() + (p * N_ + token) * PANEL;
        const float* c = tape.cells.data() + (p * (B_ + N_) + token) * LANES;
        float* dc = scratch.dc.data() + (p * rows + row + i) * LANES;
        const bool reset = is_reset(call, r, token);
        const Cell cell{load(gates), load(gates + LANES), load(gates + 2 * LANES), load(gates + 3 * LANES),
                        load(c + B_ * LANES), all(0.0f)};
        const CellGradient d = cell_backward(cell, reset ? all(0.0f) : load(c), load(dm + i * PANEL + (p - 4 * q) * LANES),
                                             load(dc), call.cell_clip);
        store(gates, d.i);
        store(gates + LANES, d.j);
        store(gates + 2 * LANES, d.f);
        store(gates + 3 * LANES, d.o);
        store(dc, reset ? all(0.0f) : d.before);
      }
  }

  // Turns the gradient of the layer's output, in d_above, into that of the output of the layer below, or of x.
  void pass_below(const StackCall& call, long r, long l, long n, const float* d_input) {
    float* above = d_above(r, n);
    const float* factor = l > 0 && call.dropout ? call.dropout + ((r * (L_ - 1) + l - 1) * N_ + n) * P_ : nullptr;
    for (long k = 0; k < P_; k++) {
      const float d = call.skip && l > 0 ? d_input[k] + above[k] : d_input[k];
      above[k] = factor ? d * factor[k] : d;
    }
  }

  // bfloat16: the operands of the weights' gradients, in which two tokens are a word.
  void pack_tokens(LayerTape& tape) {
    column_words<D>(tape.inputs.data(), W_, N_, W_, tape.input_words.data(), W_);
    column_words<D>(tape.before.data(), W_, N_, W_, tape.before_words.data(), W_);
    for (long q = 0; q < W_ / PANEL; q++)
      pack_rows<D>(tape.d_hidden.data() + q * N_ * PANEL, PANEL, N_, PANEL, tape.d_hidden_words.data() + q * token_steps() * PANEL, 0, 1);
  }

  static Left as_columns(const Array<float>& matrix, const Array<Word>& words, long stride) {
    if constexpr (D::PER_WORD == 1) return columns_of(matrix.data(), stride);
    return {words.data(), 1, stride};
  }

  void kernel_gradient(const StackCall& call, long i, long first) {
    LayerTape& tape = *tapes_[i];
    const long last = std::min(panels_, first + PANELS_PER_PIECE), count = last - first, steps = token_steps();
    Array<float> gradient(2 * P_ * count * PANEL);  // (2P, panels, PANEL)
    Array<Word> words(D::PER_WORD > 1 ? count * steps * PANEL : 0);
    const float* gates = tape.gates.data() + first * N_ * PANEL;
    Right right{reinterpret_cast<const Word*>(gates), N_ * PANEL};
    if (D::PER_WORD > 1) {
      for (long p = 0; p < count; p++)
        pack_rows<D>(gates + p * N_ * PANEL, PANEL, N_, PANEL, words.data() + p * steps * PANEL, 0, 1);
      right = {words.data(), steps * PANEL};
    }
    gemm<D>(as_columns(tape.inputs, tape.input_words, W_), 0, P_, right, 0, count, steps, gradient.data(), count * PANEL, PANEL,
            false);
    gemm<D>(as_columns(tape.before, tape.before_words, W_), 0, P_, right, 0, count, steps,
            gradient.data() + P_ * count * PANEL, count * PANEL, PANEL, false);
    for (long p = 0; p < count; p++) {
      const long cell = (first + p) * LANES, cells = std::min<long>(LANES, H_ - cell);
      Floats sums[4] = {all(0.0f), all(0.0f), all(0.0f), all(0.0f)};
      for (long n = 0; n < N_; n++)
        for (int j = 0; j < 4; j++) sums[j] = add(sums[j], load(gates + (p * N_ + n) * PANEL + j * LANES));
      for (long j = 0; j < 4; j++) {
        alignas(64) float bias[LANES];
        store(bias, sums[j]);
        std::memcpy(call.d_biases[i] + j * H_ + cell, bias, cells * sizeof(float));
        for (long k = 0; k < 2 * P_; k++)
          std::memcpy(call.d_kernels[i] + k * 4 * H_ + j * H_ + cell, gradient.data() + (k * count + p) * PANEL + j * LANES,
                      cells * sizeof(float));
      }
    }
  }

  void projection_gradient(const StackCall& call, long i, long first) {
    LayerTape& tape = *tapes_[i];
    const long cells = std::min(CELLS_PER_PIECE, H_ - first), steps = token_steps();
    Array<float> gradient(cells * W_);
    Array<Word> words(D::PER_WORD > 1 ? steps * round_up(cells, LANES) : 0);
    Left left = columns_of(tape.cell_out.data() + first, S_);
    Right right{reinterpret_cast<const Word*>(tape.d_hidden.data()), N_ * PANEL};
    if (D::PER_WORD > 1) {
      const long stride = round_up(cells, LANES);
      column_words<D>(tape.cell_out.data() + first, S_, N_, stride, words.data(), stride);
      left = {words.data(), 1, stride};
      right = {tape.d_hidden_words.data(), steps * PANEL};
    }
    gemm<D>(left, 0, cells, right, 0, W_ / PANEL, steps, gradient.data(), W_, PANEL, false);
    for (long c = 0; c < cells; c++)
      std::memcpy(call.d_projections[i] + (first + c) * P_, gradient.data() + c * W_, P_ * sizeof(float));
  }

  const long R_, L_, P_, H_, W_, S_, panels_, p_steps_;  // W: P padded; S: stride of H floats
  long T_ = 0, B_ = 0, N_ = 0;
  std::vector<std::unique_ptr<LayerTape>> tapes_;  // by direction, then layer
  Array<float> d_above_;                           // (R, tokens, W): gradient of the output of the layer in turn
};

}  // namespace elmo
