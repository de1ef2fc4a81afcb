// What hiding an upload costs: encoding, the masks of a member, the server's sum and the masks that it takes off. Times
// are processor time of all threads; the keys of a round are made beforehand, and BM_Keys measures them.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include <map>

#include "crypto/chacha20.h"
#include "crypto/x25519.h"
#include "secure/masks.h"
#include "secure/ring.h"

namespace evenkeel::secure {
namespace {

constexpr int64_t kFedSb = 1'250'000, kFfaLora = 86'500'000,
                  kFedIt = 193'986'560;  // values of an upload of OLMoE-1B-7B

struct Round {
  Bytes32 context{7};
  std::map<Place, Secret> secrets{}, seeds{};
  std::map<Place, Bytes32> publics{};

  explicit Round(int64_t members) {
    for (Place place = 0; place < members; ++place) {
      secrets[place] = Secret::random();
      seeds[place] = Secret::random();
      publics[place] = crypto::x25519_public(secrets[place]);
    }
  }
  std::vector<MaskKey> keys_of(Place place) const {
    return upload_keys(context, place, secrets.at(place), seeds.at(place), publics);
  }
  std::vector<MaskKey> removal(int64_t lost) const {
    Recovered recovered;
    for (const auto& [place, secret] : secrets)
      if (place < lost)
        recovered.secrets[place] = secret;
      else
        recovered.seeds[place] = seeds.at(place);
    return removal_keys(context, publics, recovered);
  }
};

RingVector vector_of(int64_t values) { return {at::zeros({values}, at::kInt), at::zeros({1024}, at::kLong)}; }

void BM_Keys(benchmark::State& state) {
  const Round round(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(round.keys_of(0));
}
BENCHMARK(BM_Keys)->Arg(8)->Arg(50)->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);

void BM_Encode(benchmark::State& state) {
  const int64_t values = state.range(0);
  const auto change = at::randn({values}) * 1e-3;
  const auto format = RingFormat::of(32, 0.125, 50);
  const auto out = format.zeros(values);
  for (auto _ : state) encode({change, 0.02}, format, {}, out);
  state.SetBytesProcessed(state.iterations() * values * 4);
}
BENCHMARK(BM_Encode)->Arg(kFedSb)->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);

/// ChaCha20 alone, of one mask.
void BM_Stream(benchmark::State& state) {
  const Secret key = Secret::random();
  std::vector<uint8_t> block(1 << 18);
  const int64_t bytes = state.range(0) * 4;
  for (auto _ : state)
    for (int64_t at = 0; at < bytes; at += static_cast<int64_t>(block.size()))
      crypto::ChaCha20(key, 0, static_cast<uint64_t>(at) / crypto::ChaCha20::kBlock).read(block);
  state.SetBytesProcessed(state.iterations() * bytes);
}
BENCHMARK(BM_Stream)->Arg(kFedSb)->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);

/// One mask, made and added.
void BM_OneMask(benchmark::State& state) {
  const std::vector<MaskKey> key{{Secret::random(), false}};
  const auto upload = vector_of(state.range(0));
  for (auto _ : state) add_streams(key, upload);
  state.SetBytesProcessed(state.iterations() * state.range(0) * 4);
}
BENCHMARK(BM_OneMask)->Arg(kFedSb)->Arg(kFfaLora)->Arg(kFedIt)->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);

/// All masks of a member. \param state  members, values
void BM_MaskUpload(benchmark::State& state) {
  const auto keys = Round(state.range(0)).keys_of(0);
  const auto upload = vector_of(state.range(1));
  for (auto _ : state) add_streams(keys, upload);
}
BENCHMARK(BM_MaskUpload)->Args({8, kFedSb})->Args({50, kFedSb})->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);

/// The server's sum of the uploads. \param state  members, values
void BM_Add(benchmark::State& state) {
  const auto total = vector_of(state.range(1)), upload = vector_of(state.range(1));
  for (auto _ : state)
    for (int64_t i = 0; i < state.range(0); ++i) {
      add_to(total.values, upload.values);
      add_to(total.counts, upload.counts);
    }
}
BENCHMARK(BM_Add)->Args({8, kFedSb})->Args({50, kFedSb})->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);

/// Taking masks off. \param state  members, values, lost members
void BM_Unmask(benchmark::State& state) {
  const Round round(state.range(0));
  const auto total = vector_of(state.range(1));
  for (auto _ : state) add_streams(round.removal(state.range(2)), total);
}
BENCHMARK(BM_Unmask)
    ->Args({8, kFedSb, 0})
    ->Args({8, kFedSb, 1})
    ->Args({50, kFedSb, 0})
    ->Args({50, kFedSb, 5})
    ->MeasureProcessCPUTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace evenkeel::secure

BENCHMARK_MAIN();
