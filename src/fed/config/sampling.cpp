#include "fed/config/sampling.h"

#include <algorithm>
#include <cmath>

#include "base/plain/error.h"
#include "base/plain/sha256.h"
#include "base/random/random.h"
#include "crypto/hkdf.h"

namespace evenkeel::fed {

int64_t drawn_clients(int64_t count, double participation) {
  return std::min(count, std::max<int64_t>(1, std::llround(participation * static_cast<double>(count))));
}

std::vector<int64_t> sample_participants(int64_t count, double participation, uint64_t seed, int64_t round) {
  RandomStream stream(seed, "sample", static_cast<uint64_t>(round));
  auto ids = stream.permutation(count);
  ids.resize(static_cast<size_t>(drawn_clients(count, participation)));
  std::sort(ids.begin(), ids.end());
  return ids;
}

namespace {

/// Sets the weights p_c = |D_c| / sum |D_c'| of the round's clients, or equal ones.
void weigh(methods::RoundView& round) {
  const auto size = [&](const methods::ClientProfile& client) { return round.equal_weights ? 1.0 : client.examples; };
  double total = 0;
  for (const auto& client : round.participants) total += size(client);
  round.weights.clear();
  for (const auto& client : round.participants) round.weights.push_back(size(client) / total);
}

/// Returns the mean of K_c over clients, weighted as weigh() does.
double mean_top_k(std::span<const methods::ClientProfile* const> clients, bool equal_weights) {
  double choices = 0, total = 0;
  for (const auto* client : clients) {
    const double size = equal_weights ? 1.0 : client->examples;
    choices += size * static_cast<double>(client->top_k);
    total += size;
  }
  return choices / total;
}

}  // namespace

namespace {

std::vector<const methods::ClientProfile*> present(std::span<const methods::ClientProfile> clients, int64_t round) {
  std::vector<const methods::ClientProfile*> all;
  for (const auto& client : clients)
    if (client.may_be_drawn(round)) all.push_back(&client);
  return all;
}

uint64_t draw_of(const crypto::Secret& key, int64_t round, int64_t client) {
  std::string info = "evenkeel dp sample 1";
  info += '\0';
  crypto::append_be64(info, static_cast<uint64_t>(round));
  crypto::append_be64(info, static_cast<uint64_t>(client));
  const auto drawn = crypto::hkdf_expand(key, info);
  uint64_t value = 0;
  for (size_t byte = 0; byte < 8; ++byte) value |= uint64_t{drawn.bytes()[byte]} << (8 * byte);
  return value;
}

}  // namespace

crypto::Secret seeded_privacy_key(uint64_t seed) {
  Sha256 digest;
  digest.update(concat("evenkeel simulated privacy of clients ", seed));
  return crypto::Secret(digest.bytes());
}

methods::RoundView draw_poisson(std::span<const methods::ClientProfile> clients, double probability,
                                const crypto::Secret& key, int64_t round, bool equal_weights) {
  methods::RoundView view{.round = round, .equal_weights = equal_weights};
  const auto all = present(clients, round);
  if (all.empty()) return view;
  view.mean_top_k_of_all = mean_top_k(all, equal_weights);
  for (const auto* client : all)
    if (probability >= 1 || static_cast<double>(draw_of(key, round, client->id)) < std::ldexp(probability, 64))
      view.participants.push_back(*client);
  weigh(view);
  return view;
}

methods::RoundView draw_round(std::span<const methods::ClientProfile> clients, double participation, uint64_t seed,
                              int64_t round, bool equal_weights) {
  methods::RoundView view{.round = round, .equal_weights = equal_weights};
  const auto all = present(clients, round);
  if (all.empty()) return view;
  view.mean_top_k_of_all = mean_top_k(all, equal_weights);
  for (const int64_t i : sample_participants(static_cast<int64_t>(all.size()), participation, seed, round))
    view.participants.push_back(*all[static_cast<size_t>(i)]);
  weigh(view);
  return view;
}

methods::RoundView without(methods::RoundView round, std::span<const int64_t> lost, int64_t quorum) {
  const size_t drawn = round.participants.size();
  std::erase_if(round.participants, [&](const methods::ClientProfile& client) {
    return std::find(lost.begin(), lost.end(), client.id) != lost.end();
  });
  const size_t left = round.participants.size();
  EK_CHECK(left > 0, kData, "round ", round.round + 1, ": no client replied");
  EK_CHECK(left >= static_cast<size_t>(quorum), kData, "round ", round.round + 1, ": ", left, " of ", drawn,
           " clients replied, clients.quorum is ", quorum);
  weigh(round);
  return round;
}

}  // namespace evenkeel::fed
