/// \file  Defines the config section [secure_aggregation]: whether the server sees single uploads or their sum alone.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/format/config_table.h"

namespace evenkeel::fed {

/// Selects what the server gets of the uploads of a round.
enum class SecureMode {
  kOff,    ///< every upload
  kSums,   ///< the uploads as integers modulo 2^bits, which it adds: bit-identical to kMasks, without its protection
  kMasks,  ///< the same integers behind masks that cancel in their sum
};
constexpr auto names(SecureMode) {
  return std::array{config::EnumName<SecureMode>{"off", SecureMode::kOff},
                    config::EnumName<SecureMode>{"sums", SecureMode::kSums},
                    config::EnumName<SecureMode>{"masks", SecureMode::kMasks}};
}

/// Selects the weight of a client in the sum.
enum class SumWeights {
  kExamples,  ///< its share of the training rows of the round's clients
  kUniform,   ///< equal
};
constexpr auto names(SumWeights) {
  return std::array{config::EnumName<SumWeights>{"examples", SumWeights::kExamples},
                    config::EnumName<SumWeights>{"uniform", SumWeights::kUniform}};
}

/// `[secure_aggregation]`.
struct SecureAggregationSection {
  /// Smallest number of clients in an unmasked sum: of a sum of two, each client could compute the other's part.
  static constexpr int64_t kFewest = 3;

  SecureMode mode = SecureMode::kOff;
  int64_t bits = 32;
  double range = 0;
  int64_t threshold = 0;
  SumWeights weights = SumWeights::kExamples;
  int64_t colluders = 0;
  bool reports = true;

  void visit(auto& field) {
    field(
        "mode", mode,
        "what the server gets of uploads: off (each of them), sums (their changes as integers, which it adds) or "
        "masks (the same integers behind masks that cancel in the sum; the bits are those of sums). With nodes, masks "
        "protect uploads from the server; in train they are simulated");
    field("bits", bits, "size of these integers: 16, 32 or 64");
    field("range", range,
          "largest change of a value in a round; larger ones are cut and counted; 0: 4 times the learning rate times "
          "the largest client's steps, rounded up to a power of two");
    field("threshold", threshold,
          "masks, or sums with privacy.unit client: number of clients that must upload and help to unmask; 3 or more, "
          "and more than half of the round's clients and colluders together; 0: the least allowed");
    field("weights", weights, "weight of a client: examples (its share of the training rows) or uniform");
    field("colluders", colluders,
          "masks, or sums with privacy.unit client: number of clients that may collude with the server; it raises the "
          "least threshold. With privacy.unit client, the noise of threshold minus colluders clients is enough");
    field("reports", reports,
          "sum losses, tokens, expert counts and metrics too; false: records lack them, as nodes need that are private "
          "for their rows (node --privacy-epsilon)");
  }
  void resolve(const config::Table& table) const;

  bool hides_uploads() const { return mode != SecureMode::kOff; }
  /// Returns the smallest allowed threshold of a round with `members` clients: any two sets of that many clients have
  /// an honest client in common, who helps to unmask only one of the two sums.
  int64_t least_threshold(int64_t members) const { return std::max(kFewest, (members + colluders) / 2 + 1); }
  /// Returns the threshold of a round with `members` clients: `threshold`, or least_threshold() if that is larger.
  int64_t threshold_of(int64_t members) const { return std::max(threshold, least_threshold(members)); }
  /// Returns the least number of honest clients whose noise is in a sum, in a round with `members` clients.
  int64_t honest_of(int64_t members) const { return threshold_of(members) - colluders; }
};

/// Checks that the section fits clients that are nodes. \throws kConfig for sums, which show the server each upload
void check_nodes(const SecureAggregationSection& section);

}  // namespace evenkeel::fed
