// Projected LSTM layers of one direction over many sentences, without padding; rows are independent of each other.
//
// Sentences are queued end to end in a fixed number of slots (slots.h). A step advances every slot by one token. When a
// slot reaches its next sentence, its state is set to the initial state of that sentence. Steps are grouped in chunks of
// about CACHE_ROWS tokens. A chunk runs through all layers before the next chunk, so memory stays small and the input
// products of the layers have enough rows to be fast.
//
// Several threads may compute the same steps together and divide the columns of each product (team.h). Every thread calls
// `run`; what is not a product is done by one of them.
#pragma once
#include <memory>

#include "inputs.h"
#include "slots.h"
#include "team.h"

namespace elmo {

// c = sigmoid(f) c + sigmoid(i) tanh(j) and h = sigmoid(o) tanh(c), each with one common denominator, because a division
// costs as much as an exponential, and five divisions cost a tenth of the products of a small model.
ELMO_INLINE Floats cell_step(Floats i, Floats j, Floats f, Floats o, Floats& c, float cell_clip) {
  const Floats one = all(1.0f);
  const Floats a = add(one, exp2(mul(all(-LOG2_E), i)));  // sigmoid(i) = 1 / a
  const Floats b = add(one, exp2(mul(all(-LOG2_E), f)));
  const Floats e = exp2(mul(all(2 * LOG2_E), j));  // tanh(j) = (e - 1) / (e + 1)
  const Floats ae = mul(a, add(e, one));
  c = div(fma(c, ae, mul(sub(e, one), b)), mul(ae, b));
  c = clip(c, cell_clip);
  const Floats d = add(one, exp2(mul(all(-LOG2_E), o)));
  const Floats t = exp2(mul(all(2 * LOG2_E), c));
  return div(sub(t, one), mul(d, add(t, one)));
}

template <class D>
class Stream {
 public:
  Stream(const Task& task, long direction, const std::vector<long>& sentences, long members)
      : task_(task), direction_(direction), members_(members), P_(task.proj_dim), H_(task.cell_dim), L_(task.num_layers) {
    slots_ = queue_sentences(task, direction, sentences);  // most tokens first, so the active slots are the first ones
    S_ = slots_.size();
    width_ = round_up(P_, 64);
    panels_ = round_up(H_, LANES) / LANES;
    h_words_ = row_words(task.dtype, P_);
    cell_words_ = row_words(task.dtype, H_);
    for (long l = 0; l < L_; l++) {
      cells_.emplace_back(new Array<float>(panels_ * S_ * LANES));
      hidden_.emplace_back(new Array<Word>(S_ * h_words_));
      scales_.emplace_back(new Array<float>(S_));
    }
    cell_out_.resize(S_ * cell_words_);
    unit_scales_.resize(S_);
    for (long s = 0; s < S_; s++) unit_scales_[s] = D::UNIT_SCALE;
    h_.resize(S_ * width_);
    padded_.resize(width_);
    inputs_.resize(S_);
    top_ = task.final_h ? L_ : highest_used_layer();
    if (S_) plan();
  }

  void run() {
    Phase* phase = phases_.data();
    for (const Chunk& chunk : chunks_) {
      if (stopped(task_.stop)) return;
      pass(chunk, phase);
    }
  }

 private:
  struct Chunk {
    long begin, end, rows;  // first and last step, and the number of tokens
  };

  // Plans the chunks and allocates all memory before the threads start.
  void plan() {
    const long longest = slots_[0].size();
    long tokens = 0;
    for (const auto& slot : slots_) tokens += slot.size();
    const long most = chunk_rows_ = std::min<long>(tokens, std::max<long>(CACHE_ROWS, S_));
    for (long t = 0; t < longest;) {
      Chunk chunk{t, t, 0};
      while (t < longest && (t == chunk.begin || chunk.rows + active(t) <= most)) {
        starts_.push_back(chunk.rows);
        chunk.rows += active(t++);
      }
      chunk.end = t;
      chunks_.push_back(chunk);
    }
    if (members_ > 1) phases_ = std::vector<Phase>(3 * top_ * longest + (2 * top_ + 1) * chunks_.size());
    outputs_.resize((L_ + 1) * most * width_);
    if (top_ >= 1) {
      const long capacity = std::min<long>(task_.num_words, std::max<long>(task_.input_rows, 2 * most));
      first_.reset(new InputProducts<D>(*weights(0).input, task_.table, task_.num_words, capacity, most));
    }
    if (top_ >= 2) {
      above_.reserve(most * weights(1).input->outputs);
      below_.reserve(most * h_words_);
      below_scales_.reserve(most);
    }
  }

  // Calls work() on one of the threads.
  template <class Work>
  void once(Phase*& phase, Work work) {
    if (members_ == 1) work();
    else phase++->share(1, [&](long) { work(); });
  }

  // Calls work(begin, end) for all panels, divided among the threads.
  template <class Work>
  void in_panels(Phase*& phase, long panels, Work work) {
    if (members_ == 1) {
      work(0, panels);
      return;
    }
    const long pieces = std::min(panels, PIECES * members_);
    phase++->share(pieces, [&](long i) { work(i * panels / pieces, (i + 1) * panels / pieces); });
  }

  long highest_used_layer() const {
    long top = 0;
    for (long k = 0; k < task_.num_mixes; k++)
      for (long l = 0; l <= L_; l++)
        if (task_.mix[k * (L_ + 1) + l] != 0.0f) top = std::max(top, l);
    return top;
  }

  long active(long t) const {  // number of slots that have a token at step t; they are the first ones
    long low = 0, high = S_;
    while (low < high) {
      const long middle = (low + high) / 2;
      if (long(slots_[middle].size()) > t) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  const LayerWeights& weights(long layer) const { return task_.layers[direction_ * L_ + layer]; }
  float* output(long layer, long row) { return outputs_.data() + (layer * chunk_rows_ + row) * width_; }

  void pass(const Chunk& chunk, Phase*& phase) {
    for (long layer = 0; layer < top_; layer++) {
      once(phase, [&] {
        if (layer == 0) read_words(chunk);
        else
          for (long r = 0; r < chunk.rows; r++)
            below_scales_[r] = D::convert(output(layer, r), P_, below_.data() + r * h_words_);
        begin_step(layer, chunk.begin);
      });
      const Matrix& input = *weights(layer).input;
      in_panels(phase, input.panels(), [&](long begin, long end) {
        if (layer == 0) first_->compute(begin, end);
        else
          product<D>(below_.data(), h_words_, chunk.rows, input, below_scales_.data(), above_.data(), PANEL,
                     chunk.rows * PANEL, begin, end);
      });
      for (long t = chunk.begin; t < chunk.end; t++) step(layer, t, chunk, phase);
    }
    once(phase, [&] {
      if (top_ == 0) read_words(chunk);
      for (long t = chunk.begin; t < chunk.end; t++)
        for (long s = 0, n = active(t); s < n; s++) write_result(slots_[s][t].token, starts_[t] + s);
    });
  }

  void read_words(const Chunk& chunk) {
    for (long t = chunk.begin; t < chunk.end; t++)
      for (long s = 0, n = active(t); s < n; s++)
        std::memcpy(output(0, starts_[t] + s), task_.table + word(s, t) * P_, P_ * sizeof(float));
    if (top_ == 0) return;
    long t = chunk.begin, s = 0;
    first_->prepare(chunk.rows, [&]() -> long {
      while (s >= active(t)) {
        s = 0;
        if (++t >= long(slots_[0].size())) return -1;
      }
      return word(s++, t);
    });
  }

  long word(long s, long t) const { return task_.tokens[slots_[s][t].token]; }

  void step(long layer, long t, const Chunk& chunk, Phase*& phase) {
    const long rows = active(t), input_stride = layer == 0 ? first_->panel_stride() : chunk.rows * PANEL;
    const LayerWeights& w = weights(layer);
    in_panels(phase, panels_, [&](long begin, long end) {
      for (long p = begin; p < end; p++)
        in_tiles(0, rows, [&](auto count, long s) { gates<decltype(count)::value>(layer, w, p, s, input_stride); });
    });
    if (w.projection)
      in_panels(phase, w.projection->panels(), [&](long begin, long end) {
        product<D>(cell_out_.data(), cell_words_, rows, *w.projection, unit_scales_.data(), h_.data(), width_, PANEL,
                   begin, end);
      });
    once(phase, [&] {
      end_step(layer, t);
      if (t + 1 < chunk.end) begin_step(layer, t + 1);
    });
  }

  void begin_step(long layer, long t) {
    for (long s = 0, rows = active(t); s < rows; s++) {
      if (slots_[s][t].begins >= 0) begin_sentence(layer, s, slots_[s][t].begins);
      inputs_[s] = layer == 0 ? first_->row(word(s, t)) : above_.data() + (starts_[t] + s) * PANEL;
    }
  }

  void end_step(long layer, long t) {
    const float limit = weights(layer).projection ? task_.proj_clip : INFINITY;
    for (long s = 0, rows = active(t); s < rows; s++) {
      float* h = h_.data() + s * width_;
      const float* below = output(layer, starts_[t] + s);
      float* above = output(layer + 1, starts_[t] + s);
      const bool skips = task_.skip && layer > 0;
      for (long k = 0; k < width_; k += LANES) {
        const Floats v = clip(load(h + k), limit);
        store(h + k, v);
        store(above + k, skips ? add(v, load(below + k)) : v);
      }
      (*scales_[layer])[s] = D::convert(h, P_, hidden_[layer]->data() + s * h_words_);
      if (task_.final_h && slots_[s][t].ends >= 0) end_sentence(layer, s, slots_[s][t].ends);
    }
  }

  // The gates of one panel for ROWS slots, and the cells from them while they are still in the L1 cache.
  template <int ROWS>
  void gates(long layer, const LayerWeights& w, long p, long s, long input_stride) {
    typename D::Sum sums[ROWS][4];
    clear<D, ROWS>(sums);
    multiply<D, ROWS>(hidden_[layer]->data() + s * h_words_, h_words_, w.recurrent->panel(p), w.recurrent->steps, sums);
    alignas(64) float stored[ROWS][4][LANES];
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 4
      for (int j = 0; j < 4; j++) D::save(stored[r][j], sums[r][j]);
    finish(layer, w, p, s, ROWS, &stored[0][0][0], input_stride);
  }

  // Separate from `gates`, because otherwise the compiler keeps the sums in memory during the product, too.
  __attribute__((noinline)) void finish(long layer, const LayerWeights& w, long p, long s, int rows, const float* stored,
                                        long input_stride) {
    float* c = cells_[layer]->data() + (p * S_ + s) * LANES;
    const float* row_scales = scales_[layer]->data() + s;
    for (int r = 0; r < rows; r++, c += LANES, stored += 4 * LANES) {
      const float* x = inputs_[s + r] + p * input_stride;
      Floats g[4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; j++) {
        const typename D::Sum sum = D::partial(stored + j * LANES);
        g[j] = add(D::value(sum, *w.recurrent, p * PANEL + j * LANES, row_scales[r]), load(x + j * LANES));
      }
      Floats cell = load(c);
      const Floats h = cell_step(g[0], g[1], g[2], g[3], cell, task_.cell_clip);
      store(c, cell);
      if (w.projection)
        D::convert_unit(h, cell_out_.data() + (s + r) * cell_words_, p * LANES);
      else
        store(h_.data() + (s + r) * width_ + p * LANES, h);
    }
  }

  void begin_sentence(long layer, long s, long sentence) {
    const long n = task_.initial_rows, at = (direction_ * L_ + layer) * n + (n == 1 ? 0 : sentence);
    const float* c = task_.initial_c + at * H_;
    for (long i = 0; i < H_; i++) cell(layer, s, i) = c[i];
    std::memcpy(padded_.data(), task_.initial_h + at * P_, P_ * sizeof(float));
    (*scales_[layer])[s] = D::convert(padded_.data(), P_, hidden_[layer]->data() + s * h_words_);
  }

  void end_sentence(long layer, long s, long sentence) {
    const long at = (direction_ * L_ + layer) * task_.num_sentences + sentence;
    for (long i = 0; i < H_; i++) task_.final_c[at * H_ + i] = cell(layer, s, i);
    std::memcpy(task_.final_h + at * P_, h_.data() + s * width_, P_ * sizeof(float));
  }

  float& cell(long layer, long s, long i) { return (*cells_[layer])[(i / LANES * S_ + s) * LANES + i % LANES]; }

  void write_result(long token, long row) {
    const long place = task_.places[token];
    if (place < 0) return;
    for (long k = 0; k < task_.num_mixes; k++) {
      float* out = task_.out + (k * task_.out_rows + place) * task_.num_directions * P_ + direction_ * P_;
      const float* weight = task_.mix + k * (L_ + 1);
      bool empty = true;
      for (long l = 0; l <= top_; l++) {
        const float* from = output(l, row);
        const float w = weight[l];
        if (w == 0.0f) continue;
        if (empty && w == 1.0f) std::memcpy(out, from, P_ * sizeof(float));
        else if (empty) for (long i = 0; i < P_; i++) out[i] = w * from[i];
        else for (long i = 0; i < P_; i++) out[i] += w * from[i];
        empty = false;
      }
      if (empty) std::memset(out, 0, P_ * sizeof(float));
    }
  }

  static constexpr long PIECES = 4;  // per thread and product: if one thread is slow, the others take more
  const Task& task_;
  const long direction_, members_, P_, H_, L_;
  long S_, width_, panels_, h_words_, cell_words_, top_, chunk_rows_ = 0;
  std::vector<std::vector<Visit>> slots_;
  std::vector<Chunk> chunks_;
  std::vector<long> starts_;                            // per step: its first row in its chunk
  std::vector<Phase> phases_;                           // of all chunks; empty with one thread
  std::vector<std::unique_ptr<Array<float>>> cells_;    // per layer: (panels, S, LANES)
  std::vector<std::unique_ptr<Array<Word>>> hidden_;    // per layer: (S, words of P)
  std::vector<std::unique_ptr<Array<float>>> scales_;   // per layer: (S), the scales of its hidden rows
  std::unique_ptr<InputProducts<D>> first_;             // input products of the first layer
  Array<float> above_;                                  // input products of a later layer, (panels, rows, PANEL)
  Array<Word> below_;                                   // the input rows of that layer
  Array<float> below_scales_;
  std::vector<const float*> inputs_;                    // per slot: the first panel of its input product
  Array<Word> cell_out_;                                // (S, words of H), before the projection
  Array<float> unit_scales_, h_, padded_;               // (S), (S, width), (width)
  Array<float> outputs_;                                // (L + 1, rows, width) of one chunk
};

}  // namespace elmo
