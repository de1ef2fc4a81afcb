#include "fed/sampling.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/random.h"

namespace evenkeel {

std::vector<int64_t> sample_participants(int64_t count, double participation, uint64_t seed, int64_t round) {
  const auto drawn = std::max<int64_t>(1, std::llround(participation * static_cast<double>(count)));
  RandomStream stream(seed, "sample", static_cast<uint64_t>(round));
  auto ids = stream.permutation(count);
  ids.resize(static_cast<size_t>(std::min(drawn, count)));
  std::sort(ids.begin(), ids.end());
  return ids;
}

namespace {

/// p_c = |D_c| / sum |D_c'|
void weigh(RoundView& round) {
  double total = 0;
  for (const auto& client : round.participants) total += client.examples;
  round.weights.clear();
  for (const auto& client : round.participants) round.weights.push_back(client.examples / total);
}

}  // namespace

RoundView draw_round(std::span<const ClientProfile> clients, double participation, uint64_t seed, int64_t round) {
  RoundView view{.round = round, .participants = {}, .weights = {}};
  for (int64_t id : sample_participants(static_cast<int64_t>(clients.size()), participation, seed, round))
    view.participants.push_back(clients[static_cast<size_t>(id)]);
  weigh(view);
  return view;
}

RoundView without(RoundView round, std::span<const int64_t> lost) {
  std::erase_if(round.participants, [&](const ClientProfile& client) {
    return std::find(lost.begin(), lost.end(), client.id) != lost.end();
  });
  EK_CHECK(!round.participants.empty(), kData, "round ", round.round + 1, ": no client replied");
  weigh(round);
  return round;
}

}  // namespace evenkeel
