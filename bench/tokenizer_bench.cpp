// Measures the tokenizer: whole texts, lines, decoding, very long words (the time must be nearly linear in the length),
// loading and training. By default it uses a tokenizer that it trains on built-in text. EVENKEEL_TOKENIZER (a
// tokenizer.json) and EVENKEEL_TEXT (a text file) select others, as in bench/peers/tokenizer.py.
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/testing.h"
#include "bench/peak_memory.h"
#include "data/builtin_text.h"
#include "tokenizer/bpe_training.h"
#include "tokenizer/tokenizer.h"

namespace evenkeel {
namespace {

constexpr uint64_t kSeed = 11;

const std::string& text() {
  static const std::string whole = [] {
    if (const char* file = std::getenv("EVENKEEL_TEXT")) return read_file(file);
    std::string joined;
    for (const auto& document : data::builtin_documents(2000, kSeed)) joined += document + "\n";
    return joined;
  }();
  return whole;
}

const fs::path& tokenizer_file() {
  static const fs::path file = [] {
    if (const char* given = std::getenv("EVENKEEL_TOKENIZER")) return fs::path(given);
    static const testing::TemporaryFile trained(tokenizer::train_tokenizer({&text(), 1}, {}));
    return trained.path();
  }();
  return file;
}

const tokenizer::Tokenizer& tokenizer() {
  static const auto loaded = tokenizer::Tokenizer::load(tokenizer_file());
  return loaded;
}

std::vector<std::string_view> lines_of(std::string_view whole) {
  std::vector<std::string_view> lines;
  while (!whole.empty()) {
    lines.push_back(whole.substr(0, whole.find('\n')));
    whole.remove_prefix(std::min(whole.size(), lines.back().size() + 1));
  }
  return lines;
}

double peak_mib() { return static_cast<double>(peak_memory_kib()) / 1024; }

/// Resets the peak to the memory that is resident now and returns it.
double restart_peak() {
  ::malloc_trim(0);
  restart_peak_memory();
  return peak_mib();
}

void encode_whole_text(benchmark::State& state) {
  const auto& tok = tokenizer();
  const auto& whole = text();
  const double before = restart_peak();
  size_t tokens = 0;
  for (auto _ : state) tokens = tok.encode(whole).size();
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(whole.size()));
  state.counters["tokens"] = static_cast<double>(tokens);
  state.counters["MiB"] = peak_mib() - before;
}

void encode_lines(benchmark::State& state) {
  const auto& tok = tokenizer();
  const auto lines = lines_of(text());
  for (auto _ : state)
    for (const auto line : lines) benchmark::DoNotOptimize(tok.encode(line));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text().size()));
}

void decode_whole_text(benchmark::State& state) {
  const auto ids = tokenizer().encode(text());
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer().decode(ids));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text().size()));
}

/// Encodes one word of letters that do and do not merge. Argument: its bytes.
void encode_one_word(benchmark::State& state) {
  const auto& tok = tokenizer();
  std::string word;
  for (uint32_t i = 0; word.size() < static_cast<size_t>(state.range(0)); ++i)
    word += static_cast<char>('a' + (i * 2654435761u >> 8) % 26);
  const double before = restart_peak();
  for (auto _ : state) benchmark::DoNotOptimize(tok.encode(word));
  state.SetBytesProcessed(state.iterations() * state.range(0));
  state.counters["MiB"] = peak_mib() - before;
  state.SetComplexityN(state.range(0));
}

void load(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer::Tokenizer::load(tokenizer_file()));
}

void train(benchmark::State& state) {
  const std::vector<std::string> texts = {text().substr(0, 400'000)};
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer::train_tokenizer(texts, {}));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(texts[0].size()));
}

BENCHMARK(encode_whole_text)->Unit(benchmark::kMillisecond);
BENCHMARK(encode_lines)->Unit(benchmark::kMillisecond);
BENCHMARK(decode_whole_text)->Unit(benchmark::kMillisecond);
BENCHMARK(encode_one_word)->RangeMultiplier(8)->Range(1 << 11, 1 << 20)->Unit(benchmark::kMillisecond)->Complexity();
BENCHMARK(load)->Unit(benchmark::kMillisecond);
BENCHMARK(train)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace evenkeel

BENCHMARK_MAIN();
