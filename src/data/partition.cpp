#include "data/partition.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "base/random/random.h"

namespace evenkeel::data {
namespace {

using Shards = std::vector<std::vector<int64_t>>;

/// Divides `rows` into contiguous parts whose sizes differ by at most one.
Shards cut_evenly(std::span<const int64_t> rows, int64_t clients) {
  Shards shards;
  const auto total = static_cast<int64_t>(rows.size());
  for (int64_t c = 0; c < clients; ++c)
    shards.emplace_back(rows.begin() + c * total / clients, rows.begin() + (c + 1) * total / clients);
  return shards;
}

using Groups = std::map<std::string_view, std::vector<int64_t>>;  // label -> rows

/// Shuffles the rows of each group.
Groups shuffled_groups(std::span<const std::string> labels, uint64_t seed) {
  Groups groups;
  for (size_t i = 0; i < labels.size(); ++i) groups[labels[i]].push_back(static_cast<int64_t>(i));
  uint64_t number = 0;
  for (auto& [label, rows] : groups) RandomStream(seed, "partition-group", number++).shuffle(std::span(rows));
  return groups;
}

/// Returns the rows of each group, in the order of the labels.
Shards in_order_of_labels(Groups groups) {
  Shards result;
  for (auto& [label, rows] : groups) result.push_back(std::move(rows));
  return result;
}

/// Returns the concentration of each group for the mixtures of clients.
std::vector<double> concentrations(const Shards& groups, double total, const PartitionConfig& config) {
  std::vector<double> alphas;
  for (const auto& rows : groups)
    alphas.push_back(config.scheme == DirichletScheme::kPrior ? config.alpha * static_cast<double>(rows.size()) / total
                                                              : config.alpha);
  return alphas;
}

/// Weights of which one is drawn and one set to 0 in a logarithmic number of steps: leaves of a binary tree of sums.
class DrawnWeights {
 public:
  explicit DrawnWeights(std::span<const double> weights)
      : count_(weights.size()), leaves_(std::bit_ceil(count_)), sums_(2 * leaves_) {
    std::copy(weights.begin(), weights.end(), sums_.begin() + static_cast<std::ptrdiff_t>(leaves_));
    for (size_t at = leaves_ - 1; at > 0; --at) sums_[at] = sums_[2 * at] + sums_[2 * at + 1];
  }

  bool all_zero() const { return sums_[1] <= 0; }

  void set_to_zero(size_t index) {
    sums_[leaves_ + index] = 0;
    for (size_t at = (leaves_ + index) / 2; at > 0; at /= 2) sums_[at] = sums_[2 * at] + sums_[2 * at + 1];
  }

  /// Draws as stream.choose(weights) does: up to kMostAlike weights, the index is the same in every case.
  size_t choose(RandomStream& stream) const {
    auto same_stream = stream;
    const auto [index, is_same] = find(stream.uniform() * sums_[1]);
    if (is_same || count_ > kMostAlike) return index;
    stream = same_stream;
    return static_cast<size_t>(stream.choose(std::span(sums_).subspan(leaves_, count_)));
  }

 private:
  static constexpr size_t kMostAlike = size_t{1} << 20;  // with more, too many draws would be near a limit

  struct Found {
    size_t index;
    bool is_same;  ///< as if the weights were subtracted one by one: `sum` is not within rounding of a limit
  };

  /// Finds the weight at which the sum of all weights up to it exceeds `sum`.
  Found find(double sum) const {
    size_t at = 1;
    bool is_last = true;
    while (at < leaves_) {
      at *= 2;
      if (sum >= sums_[at] && sums_[at + 1] > 0)
        sum -= sums_[at++];
      else
        is_last = is_last && sums_[at + 1] <= 0;
    }
    const double rounding = 4 * std::numeric_limits<double>::epsilon() * static_cast<double>(count_) * sums_[1];
    return {at - leaves_, sum > rounding && (is_last || sums_[at] - sum > rounding)};
  }

  size_t count_, leaves_;
  std::vector<double> sums_;  // sums_[i] = sums_[2 i] + sums_[2 i + 1]
};

/// Returns the weights with 0 for groups without rows.
DrawnWeights of_groups_with_rows(const Shards& groups, std::vector<double> weights) {
  for (size_t g = 0; g < groups.size(); ++g)
    if (groups[g].empty()) weights[g] = 0;
  return DrawnWeights(weights);
}

/// Each client draws q_c ~ Dir(alphas) over the groups and takes an equal number of rows. The group of each row is
/// drawn by q_c from the groups that still have rows.
Shards deal_to_clients(Shards groups, int64_t total, int64_t clients, const std::vector<double>& alphas,
                       uint64_t seed) {
  Shards shards(static_cast<size_t>(clients));
  for (int64_t c = 0; c < clients; ++c) {
    RandomStream stream(seed, "partition-client", static_cast<uint64_t>(c));
    auto mixture = of_groups_with_rows(groups, stream.dirichlet(alphas));
    const int64_t share = (c + 1) * total / clients - c * total / clients;
    for (int64_t i = 0; i < share; ++i) {
      if (mixture.all_zero()) mixture = of_groups_with_rows(groups, std::vector<double>(groups.size(), 1));
      const size_t g = mixture.choose(stream);
      shards[static_cast<size_t>(c)].push_back(groups[g].back());
      groups[g].pop_back();
      if (groups[g].empty()) mixture.set_to_zero(g);
    }
  }
  return shards;
}

/// Divides every group among the clients by p_g ~ Dir(alpha). Source: Yurochkin et al. 2019.
Shards cut_groups(const Shards& groups, int64_t clients, double alpha, uint64_t seed, uint64_t attempt) {
  Shards shards(static_cast<size_t>(clients));
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto shares = RandomStream(seed, "partition-cut", g, attempt).dirichlet(alpha, clients);
    double reached = 0;
    size_t start = 0;
    for (size_t c = 0; c < shards.size(); ++c) {
      reached += shares[c];
      const auto rows = static_cast<double>(groups[g].size());
      const size_t end = c + 1 == shards.size()
                             ? groups[g].size()
                             : std::min(static_cast<size_t>(std::llround(reached * rows)), groups[g].size());
      shards[c].insert(shards[c].end(), groups[g].begin() + start, groups[g].begin() + end);
      start = end;
    }
  }
  return shards;
}

bool any_empty(const Shards& shards) {
  return std::any_of(shards.begin(), shards.end(), [](const auto& rows) { return rows.empty(); });
}

/// Repeats the draw until no client is empty, as the source does.
Shards cut_groups_until_filled(const Shards& groups, int64_t clients, double alpha, uint64_t seed) {
  constexpr uint64_t kAttempts = 1000;
  for (uint64_t attempt = 0; attempt < kAttempts; ++attempt) {
    auto shards = cut_groups(groups, clients, alpha, seed, attempt);
    if (!any_empty(shards)) return shards;
  }
  fail(kConfig, "partition: in ", kAttempts, " draws with alpha ", alpha, " a client stayed empty; ", groups.size(),
       " groups over ", clients, " clients; use a larger alpha, fewer clients, or scheme \"client\"");
}

Shards dirichlet_partition(std::span<const std::string> labels, int64_t clients, const PartitionConfig& config,
                           uint64_t seed) {
  auto groups = in_order_of_labels(shuffled_groups(labels, seed));
  if (config.scheme == DirichletScheme::kGroup) return cut_groups_until_filled(groups, clients, config.alpha, seed);
  const auto total = static_cast<int64_t>(labels.size());
  const auto alphas = concentrations(groups, static_cast<double>(total), config);
  return deal_to_clients(std::move(groups), total, clients, alphas, seed);
}

/// Returns the rows of each group in the configured order of groups, or in the order of the labels without one.
Shards in_configured_order(Groups groups, std::span<const std::string> order) {
  if (order.empty()) return in_order_of_labels(std::move(groups));
  Shards result;
  for (const auto& name : order) {
    const auto found = groups.find(name);
    EK_CHECK(found != groups.end(), kConfig, "data.partition.groups holds \"", name, "\", which no training row has");
    result.push_back(std::move(found->second));
    groups.erase(found);
  }
  EK_CHECK(groups.empty(), kConfig, "data.partition.groups lacks \"", groups.begin()->first,
           "\", which training rows have; allowed: all groups, or none");
  return result;
}

/// The clients of one budget, and all others.
struct Tier {
  std::vector<size_t> clients{}, others{};
};

/// Returns a tier for each different budget, the smallest budget first.
std::vector<Tier> tiers_of(std::span<const double> budgets) {
  std::map<double, Tier> tiers;
  for (const double budget : budgets) tiers[budget];
  for (auto& [budget, tier] : tiers)
    for (size_t c = 0; c < budgets.size(); ++c) (budgets[c] == budget ? tier.clients : tier.others).push_back(c);
  EK_CHECK(tiers.size() >= 2, kConfig, "data.partition.kind is \"budget\" and all clients have budget ", budgets[0],
           ", allowed: clients of two budgets or more");
  std::vector<Tier> result;
  for (auto& [budget, tier] : tiers) result.push_back(std::move(tier));
  return result;
}

/// Divides `rows` evenly among `clients`.
void deal_evenly(std::span<const int64_t> rows, std::span<const size_t> clients, Shards& shards) {
  const auto parts = cut_evenly(rows, static_cast<int64_t>(clients.size()));
  for (size_t i = 0; i < clients.size(); ++i)
    shards[clients[i]].insert(shards[clients[i]].end(), parts[i].begin(), parts[i].end());
}

/// Gives group g to tier g modulo the number of tiers.
Shards budget_partition(std::span<const std::string> labels, std::span<const double> budgets,
                        const PartitionConfig& config, uint64_t seed) {
  const auto tiers = tiers_of(budgets);
  const auto groups = in_configured_order(shuffled_groups(labels, seed), config.groups);
  Shards shards(budgets.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto& tier = tiers[g % tiers.size()];
    const auto rows = std::span(groups[g]);
    const auto own = static_cast<size_t>(std::llround(config.share * static_cast<double>(rows.size())));
    deal_evenly(rows.first(own), tier.clients, shards);
    deal_evenly(rows.subspan(own), tier.others, shards);
  }
  for (size_t c = 0; c < shards.size(); ++c)
    EK_CHECK(!shards[c].empty(), kConfig, "data.partition gives client ", c, " (budget ", budgets[c],
             ") no row: ", groups.size(), " groups in turn to ", tiers.size(), " budgets, share ", config.share,
             "; allowed: a smaller share, more rows, or as many groups as budgets");
  return shards;
}

}  // namespace

void PartitionConfig::resolve(const config::Table& table) const {
  table.check_above_zero("alpha", alpha);
  table.check_share("share", share);
  std::set<std::string> known;
  for (const auto& group : groups)
    table.check_entry(known.insert(group).second, "groups", concat("\"", group, "\" twice"), "each group once");
}

std::vector<std::vector<int64_t>> partition(std::span<const std::string> labels, std::span<const double> budgets,
                                            const PartitionConfig& config, uint64_t seed) {
  const auto total = static_cast<int64_t>(labels.size()), clients = static_cast<int64_t>(budgets.size());
  EK_CHECK(clients >= 1, kConfig, "partition: ", clients, " clients, allowed: 1 or more");
  EK_CHECK(clients <= total, kConfig, "partition: ", clients, " clients for ", total,
           " rows; every client needs at least one");
  EK_CHECK(std::isfinite(config.alpha) && config.alpha > 0, kConfig, "partition.alpha is ", config.alpha,
           ", allowed: above 0");
  if (config.kind == PartitionKind::kDirichlet) return dirichlet_partition(labels, clients, config, seed);
  if (config.kind == PartitionKind::kBudget) return budget_partition(labels, budgets, config, seed);
  std::vector<int64_t> rows(labels.size());
  std::iota(rows.begin(), rows.end(), 0);
  if (config.kind == PartitionKind::kIid) RandomStream(seed, "partition").shuffle(std::span(rows));
  return cut_evenly(rows, clients);
}

}  // namespace evenkeel::data
