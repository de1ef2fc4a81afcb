#include "fed/sampling.h"

#include <algorithm>
#include <cmath>

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

RoundView draw_round(std::span<const ClientProfile> clients, double participation, uint64_t seed, int64_t round) {
  RoundView view{.round = round, .participants = {}, .weights = {}};
  double total = 0;
  for (int64_t id : sample_participants(static_cast<int64_t>(clients.size()), participation, seed, round)) {
    view.participants.push_back(clients[static_cast<size_t>(id)]);
    total += view.participants.back().examples;
  }
  for (const auto& client : view.participants) view.weights.push_back(client.examples / total);
  return view;
}

}  // namespace evenkeel
