// Runs the C functions of the CPU kernels on random models and writes all results as floats to a file.
//
//     driver RESULTS SEED CASES
//
// Two builds of this program, for example for AVX2 and for NEON under qemu, must write the same floats. All random numbers
// come from integers, so that every build computes from the same inputs. test_other_processors.py compares the files.
#include <cstdio>

#include "bilm.cpp"

namespace {

using Values = std::vector<float>;

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 2 + 1) {}
  long between(long low, long high) { return low + long(next() % uint32_t(high - low + 1)); }  // both included
  bool coin() { return between(0, 1); }
  float real(float scale) { return scale * (float(next() >> 8) / float(1 << 23) - 1.0f); }  // in [-scale, scale)
  Values reals(long count, float scale = 1.0f) {
    Values values(count);
    for (float& value : values) value = real(scale);
    return values;
  }

 private:
  uint32_t next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return uint32_t(state_ >> 32);
  }
  uint64_t state_;
};

using Packed = std::unique_ptr<void, void (*)(void*)>;

// A matrix with random weights of the size that trained ones have.
Packed random_matrix(Random& random, long inputs, long outputs, bool has_bias, bool gates) {
  const Values weight = random.reals(inputs * outputs, 2.0f / std::sqrt(float(inputs)));
  const Values bias = random.reals(outputs);
  return {elmo_pack(weight.data(), inputs, outputs, has_bias ? bias.data() : nullptr, FLOAT32, gates), elmo_drop};
}

const Matrix* matrix(const Packed& packed) { return static_cast<const Matrix*>(packed.get()); }

void append(Values& results, const Values& values) { results.insert(results.end(), values.begin(), values.end()); }

int run_product(Random& random, Values& results) {
  const long inputs = random.between(1, 1100), outputs = random.between(1, 150), rows = random.between(1, 20);
  const Packed weights = random_matrix(random, inputs, outputs, true, false);
  const long padded = matrix(weights)->outputs;
  const Values x = random.reals(rows * inputs);
  Values out(rows * padded);
  const int status = elmo_product(weights.get(), x.data(), rows, out.data(), 1);
  for (long r = 0; r < rows; r++) results.insert(results.end(), &out[r * padded], &out[r * padded] + outputs);
  return status;
}

int run_lstm(Random& random, Values& results) {
  const long R = random.between(1, 2), L = random.between(1, 3), P = random.between(1, 150), H = random.coin() ? P : random.between(1, 100);
  const long W = 17, S = random.between(1, 9), initial_rows = random.coin() ? 1 : S, K = L + 2;
  const float clips[] = {INFINITY, 3.0f, 0.5f, 0.05f}, scale = random.between(0, 4) ? 1.0f : 300.0f;
  std::vector<Packed> packed;
  std::vector<LayerWeights> layers;
  for (long i = 0; i < R * L; i++) {
    packed.push_back(random_matrix(random, P, 4 * H, true, true));
    packed.push_back(random_matrix(random, P, 4 * H, false, true));
    layers.push_back({matrix(packed[packed.size() - 2]), matrix(packed.back()), nullptr});
    if (H == P) continue;
    packed.push_back(random_matrix(random, H, P, false, false));
    layers.back().projection = matrix(packed.back());
  }
  std::vector<int64_t> tokens, places, offsets{0};
  for (long s = 0; s < S; s++) {
    for (long n = random.between(0, 12); n > 0; n--) tokens.push_back(random.between(0, W - 1));
    offsets.push_back(tokens.size());
  }
  for (long i = 0; i < long(tokens.size()); i++) places.push_back(i);
  Values table = random.reals(W * P, scale), mix((L + 1) * K), out(K * tokens.size() * R * P);
  for (long l = 0; l <= L; l++) mix[l * (L + 1) + l] = 1.0f, mix[(L + 1) * (L + 1) + l] = random.real(1.0f);
  if (!random.between(0, 9)) table[0] = NAN;
  const Values h = random.reals(R * L * initial_rows * P), c = random.reals(R * L * initial_rows * H);
  Values final_h(R * L * S * P), final_c(R * L * S * H);
  Task task{};
  task.layers = layers.data(), task.num_directions = R, task.num_layers = L, task.proj_dim = P, task.cell_dim = H;
  task.cell_clip = clips[random.between(0, 3)], task.proj_clip = clips[random.between(0, 3)], task.skip = random.coin();
  task.table = table.data(), task.num_words = W, task.tokens = tokens.data(), task.offsets = offsets.data();
  task.places = places.data(), task.num_sentences = S;
  task.initial_h = h.data(), task.initial_c = c.data(), task.initial_rows = initial_rows;
  task.final_h = final_h.data(), task.final_c = final_c.data();
  task.mix = mix.data(), task.num_mixes = K, task.out = out.data(), task.out_rows = tokens.size();
  task.num_slots = random.between(1, 9), task.input_rows = random.between(0, 20), task.num_threads = random.between(1, 4);
  const int status = elmo_contextualize(&task);
  for (const Values* values : {&out, &final_h, &final_c}) append(results, *values);
  return status;
}

int run_encoder(Random& random, Values& results) {
  const long N = random.between(1, 40), C = random.between(5, 14), V = random.between(1, 60), E = random.between(1, 20);
  const bool has_table = random.coin();  // of responses to single characters
  std::vector<Packed> packed;
  std::vector<Values> buffers;  // a moved vector keeps its memory
  std::vector<Convolution> convolutions;
  long F = 0;
  for (long i = random.between(1, 3); i > 0; i--) {
    const long width = random.between(1, 5), count = random.between(1, 90), panels = round_up(count, PANEL) / PANEL;
    Convolution convolution{};
    convolution.width = width, convolution.count = count;
    if (has_table) {
      Values responses(panels * width * (V + 1) * PANEL);
      for (long w = 0; w < width; w++)
        for (long v = 0; v <= V; v++)
          for (long n = 0; n < count; n++)
            responses[((n / PANEL * width + w) * (V + 1) + v) * PANEL + n % PANEL] = v ? random.real(1.0f) : 0.0f;
      buffers.push_back(std::move(responses));
      convolution.responses = buffers.back().data();
    } else {
      packed.push_back(random_matrix(random, width * E, count, false, false));
      convolution.weights = matrix(packed.back());
    }
    buffers.push_back(random.reals(count));
    buffers.back().resize(panels * PANEL);
    convolution.bias = buffers.back().data();
    convolutions.push_back(convolution);
    F += count;
  }
  std::vector<const Matrix*> highways;
  for (long i = random.between(0, 2); i > 0; i--) {  // the carry gate begins at a panel of its own
    const long padded = round_up(F, PANEL);
    Values weight = random.reals(F * F, 0.2f), carry = random.reals(F * F, 0.2f), bias = random.reals(F), more = random.reals(F);
    weight.resize(padded * F), bias.resize(padded);
    append(weight, carry), append(bias, more);
    packed.push_back({elmo_pack(weight.data(), F, padded + F, bias.data(), FLOAT32, 0), elmo_drop});
    highways.push_back(matrix(packed.back()));
  }
  const long features = random.coin() ? random.between(1, 40) : 0, dim = features + F;
  const bool projects = random.coin();
  const long P = projects ? random.between(1, 80) : dim;
  if (projects) packed.push_back(random_matrix(random, dim, P, true, false));
  std::vector<int32_t> ids(N * C);
  for (long i = 0; i < N; i++)
    for (long q = 0, used = random.between(0, C); q < used; q++) ids[i * C + q] = int32_t(random.between(1, V));
  const Values extra = random.reals(N * features);
  Values table = random.reals((V + 1) * E), out(N * P);
  std::fill(table.begin(), table.begin() + E, 0.0f);
  Words task{};
  task.ids = ids.data(), task.num_words = N, task.columns = C;
  task.features = features ? extra.data() : nullptr, task.feature_dim = features;
  task.char_table = has_table ? nullptr : table.data(), task.num_chars = V + 1, task.char_dim = E;
  task.convolutions = convolutions.data(), task.num_convolutions = convolutions.size(), task.num_filters = F;
  task.tanh = random.coin(), task.highways = highways.data(), task.num_highways = highways.size();
  task.projection = projects ? matrix(packed.back()) : nullptr;
  task.out_dim = P, task.out = out.data(), task.num_threads = random.between(1, 4);
  const int status = elmo_encode(&task);
  append(results, out);
  return status;
}

}  // namespace

int main(int count, char** words) {
  if (count != 4) return 2;
  if (!(elmo_supports() & 1)) return std::fprintf(stderr, "this processor cannot run this build\n"), 3;
  std::FILE* file = std::fopen(words[1], "wb");
  if (!file) return 4;
  for (long i = 0, seed = std::atol(words[2]), cases = std::atol(words[3]); i < cases; i++) {
    Values results;
    for (auto run : {run_product, run_lstm, run_encoder}) {
      Random random(1000 * seed + i);
      if (const int status = run(random, results)) return std::fprintf(stderr, "status %d\n", status), 5;
    }
    std::fwrite(results.data(), sizeof(float), results.size(), file);
  }
  return std::fclose(file) ? 6 : 0;
}
