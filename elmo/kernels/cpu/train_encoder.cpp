// The C functions of the token encoder in training, and the phases of a call.
//
// Each element of a result is computed by one thread in a fixed order, so the number of threads does not change any bit.
#include "train_encoder.h"

#include "train_convolutions.h"
#include "train_highways.h"

namespace {

using namespace elmo;
using namespace elmo::train_encoder;

template <class D>
class Encoder {
 public:
  Encoder(const Words& task, Workspace& w)
      : sizes_(task), task_(task), w_(w), convolutions_(sizes_, w), dense_(sizes_, w), phases_(8 + 3 * task.num_highways) {}

  void prepare_forward() {
    if (task_.num_convolutions) convolutions_.read_words();
    dense_.make_room_for_forward();
    make_scratch();
  }

  void prepare_backward() {
    convolutions_.make_room_for_gradients();
    dense_.make_room_for_backward();
    make_scratch();
  }

  void forward(long thread) {
    Phase* phase = phases_.data();
    const long N = sizes_.N, H = task_.num_highways;
    float* scratch = scratch_of(thread);
    in_row_blocks(*phase++, N, [&](long first, long last) { begin_rows(first, last); });
    const Grid grid = convolutions_.forward_grid();
    phase++->share(grid.count(), [&](long i) {
      grid.piece(i, [&](long first, long last, long part, long) { convolutions_.forward(part, first, last, dense_.x(0), scratch); });
    });
    for (long layer = 0; layer < H; layer++) {
      convert(*phase++, dense_.x(layer), sizes_.F);
      phase++->share(dense_.both_grid.count(), [&](long i) {
        dense_.both_grid.piece(i, [&](long first, long last, long p, long end) {
          dense_.highway(layer, first, last, p, end, scratch);
        });
      });
    }
    if (task_.projection) {
      convert(*phase++, dense_.tokens(), sizes_.token_dim);
      phase++->share(dense_.out_grid.count(), [&](long i) {
        dense_.out_grid.piece(i, [&](long first, long last, long p, long end) { dense_.project(first, last, p, end, scratch); });
      });
    } else {
      in_row_blocks(*phase++, N, [&](long first, long last) {
        copy_rows(dense_.tokens(), sizes_.x_stride, task_.out, sizes_.token_dim, sizes_.token_dim, first, last);
      });
    }
  }

  void backward(long thread) {
    Phase* phase = phases_.data();
    float* scratch = scratch_of(thread);
    const long T = sizes_.token_dim, stride = sizes_.x_stride;
    in_row_blocks(*phase++, sizes_.N, [&](long first, long last) {
      for (long i = first; i < last; i++) std::memset(w_.d_x.data() + i * stride + T, 0, (stride - T) * sizeof(float));
      if (!task_.projection) copy_rows(task_.d_out, T, w_.d_x.data(), stride, T, first, last);
    });
    if (task_.projection) {
      const long out_panels = dense_.out_grid.panels;
      phase++->share(out_panels + dense_.d_out_grid.panels, [&](long i) {
        if (i < out_panels) dense_.read_d_out(i);
        else dense_.pack_inputs(dense_.tokens(), T, i - out_panels);
      });
      share_both(*phase++, dense_.d_out_grid, dense_.d_projection_grid,
                 [&](long first, long last, long p, long end) { dense_.d_tokens(first, last, p, end, scratch); },
                 [&](long first, long last, long p, long end) { dense_.d_projection(first, last, p, end, scratch); });
    }
    for (long layer = task_.num_highways - 1; layer >= 0; layer--) {
      phase++->share(sizes_.panels, [&](long p) { dense_.split_gradient(layer, p); });
      share_both(*phase++, dense_.both_grid, dense_.d_weight_grid,
                 [&](long first, long last, long p, long end) { dense_.d_inputs(layer, first, last, p, end, scratch); },
                 [&](long first, long last, long p, long end) { dense_.d_weights(layer, first, last, p, end, scratch); });
    }
    phase++->share(convolutions_.num_parts(), [&](long i) { convolutions_.backward(i, dense_.x(0), dense_.d_x(), scratch); });
    phase++->share(1, [&](long) {
      convolutions_.finish_backward();
      if (task_.d_features) copy_rows(w_.d_x.data(), stride, task_.d_features, sizes_.dim, sizes_.dim, 0, sizes_.N);
    });
  }

 private:
  void make_scratch() {
    scratch_size_ = round_up(std::max(convolutions_.scratch_size(), dense_.scratch_size()), 64) + ROW_GAP;
    make_room(w_.scratch, sizes_.threads * scratch_size_);
  }
  float* scratch_of(long thread) { return w_.scratch.data() + thread * scratch_size_; }

  // Zeros the padding of rows of x and copies the word features.
  void begin_rows(long first, long last) {
    const long stride = sizes_.x_stride, T = sizes_.token_dim;
    for (long layer = 0; layer <= task_.num_highways; layer++) {
      float* x = dense_.x(layer) - sizes_.dim;
      for (long i = first; i < last; i++) std::memset(x + i * stride + T, 0, (stride - T) * sizeof(float));
    }
    if (sizes_.dim) copy_rows(task_.features, sizes_.dim, dense_.tokens(), stride, sizes_.dim, first, last);
  }

  void convert(Phase& phase, const float* x, long inputs) {
    if (dense_.CONVERTS)
      in_row_blocks(phase, sizes_.N, [&](long first, long last) { dense_.convert_rows(x, inputs, first, last); });
  }

  static void copy_rows(const float* from, long from_stride, float* to, long to_stride, long count, long first, long last) {
    for (long i = first; i < last; i++) std::memcpy(to + i * to_stride, from + i * from_stride, count * sizeof(float));
  }

  // Two products that do not depend on each other.
  template <class Work, class OtherWork>
  static void share_both(Phase& phase, const Grid& grid, const Grid& other, Work work, OtherWork other_work) {
    phase.share(grid.count() + other.count(), [&](long i) {
      if (i < grid.count()) grid.piece(i, work);
      else other.piece(i - grid.count(), other_work);
    });
  }

  const Sizes sizes_;
  const Words& task_;
  Workspace& w_;
  Convolutions convolutions_;
  Dense<D> dense_;
  std::vector<Phase> phases_;
  long scratch_size_ = 0;
};

// Whether `long` can count every array of a call.
bool fits(const Words& task) {
  const int64_t N = task.num_words, F = task.num_filters, E = task.char_dim, threads = std::max<int64_t>(1, task.num_threads);
  const int64_t row = std::max({2 * F, task.feature_dim + F, task.out_dim}) + 256;  // with more than its padding
  if (!countable({N, task.columns}) || !countable({task.num_highways + 1, N + 1, row}) || !countable({row, row}) ||
      !countable({task.num_chars + 1, E}) || !countable({threads, 4 * PANEL, row + CACHE_ROWS}))
    return false;
  const int64_t used = std::min(N * task.columns, task.num_chars + 1);  // most characters that occur
  int64_t parts = 0, widest = 0;
  for (int64_t f = 0; f < task.num_convolutions; f++) {
    const Convolution& c = task.convolutions[f];
    if (!countable({c.count, E, c.width})) return false;
    parts += c.count / PANEL + 1;
    widest = std::max(widest, c.width);
  }
  return countable({parts, N, PANEL}) && countable({parts, used, E}) &&
         countable({threads, widest, used + 2 * PANEL, E + 3 * PANEL});
}

template <class D>
int run(const Words& task, Workspace& workspace, bool backward) {
  Encoder<D> encoder(task, workspace);
  backward ? encoder.prepare_backward() : encoder.prepare_forward();
  const long threads = std::max<int64_t>(1, task.num_threads);
  return run_all(threads, threads, nullptr, [&](long thread) -> int {
    backward ? encoder.backward(thread) : encoder.forward(thread);
    return OK;
  });
}

int run_with_dtype(const Words* task, void* workspace, bool backward) {
  if (task->dtype == FLOAT32) return run<Float32>(*task, *static_cast<Workspace*>(workspace), backward);
#if defined(__AVX512BF16__)
  if (task->dtype == BFLOAT16) return run<BFloat16>(*task, *static_cast<Workspace*>(workspace), backward);
#endif
  return NOT_IN_THIS_BUILD;
}

}  // namespace

extern "C" {

void* elmo_train_encoder_workspace() {
  try {
    return new Workspace;
  } catch (...) {
    return nullptr;
  }
}

void elmo_train_encoder_drop(void* workspace) { delete static_cast<Workspace*>(workspace); }

int elmo_train_encoder_forward(const Words* task, void* workspace) {
  return guarded([&]() -> int {
    if (!fits(*task)) return OUT_OF_MEMORY;
    const long characters = task->num_convolutions ? task->num_chars + 1 : 0;
    if (!in_range(task->ids, task->num_words * task->columns, 0, characters)) return OUT_OF_RANGE;
    return run_with_dtype(task, workspace, false);
  });
}

// Reads what the forward call with the same task left in the workspace, and overwrites it.
int elmo_train_encoder_backward(const Words* task, void* workspace) {
  return guarded([&]() -> int { return fits(*task) ? run_with_dtype(task, workspace, true) : OUT_OF_MEMORY; });
}

}  // extern "C"
