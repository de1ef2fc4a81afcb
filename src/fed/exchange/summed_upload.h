/// \file  Turns what a client trained into integers modulo 2^b that the server can add without reading them, and reads
/// their sum. Both ends make the same layout from the method's upload.
///
/// Part `values`, b bits: w_c (theta_c - received) of every factor, in the order of the sites, a before b before core.
/// The weight w_c is p_c, or expert_weights() for a stack. Client c had n_c tokens, of which a_ci chose expert i.
/// Part `counts`, 64 bits: the number of values beyond the range; if secure_aggregation.reports, then a report (tokens,
/// targets, losses, chosen experts, metrics) and the utilisation p_c a_ci / n_c of each layer; then the method's own
/// sums (FederatedMethod::summands()). Numbers that are not integers are scaled by 2^20 in a report and by 2^40 in
/// utilisation and sums.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fed/exchange/summed_terms.h"
#include "methods/method.h"
#include "methods/method_registry.h"
#include "secure/masks.h"
#include "train/local_training.h"

namespace evenkeel::fed {

/// Names of the two parts among the extras of an upload.
inline constexpr const char* kSummedValues = "sum.values";
inline constexpr const char* kSummedCounts = "sum.counts";

/// What the parts of a summed upload hold, in order.
struct SummedLayout {
  struct Factor {
    std::string site, layer;  ///< layer: MoE layer of a stack of experts; empty: none
    at::Tensor lora::LoraFactors::*factor;
    std::vector<int64_t> shape;
    int64_t size = 0;
  };
  struct Sum {
    std::string name;
    std::vector<int64_t> shape;
    int64_t size = 0;
  };
  std::vector<Factor> factors{};
  bool reports = true;  ///< false: `counts` has no report, and metrics and layers are empty
  std::vector<std::string> metrics{}, layers{};
  int64_t experts = 0;  ///< number of experts of each layer
  std::vector<Sum> sums{};
  bool is_noisy = false;  ///< changes with noise: `counts` is the clip indicator alone (privacy/member_noise.h)

  int64_t values() const;  ///< length of part `values`
  int64_t counts() const;  ///< length of part `counts`
};

/// The facts about the run that both ends know.
struct SummedRun {
  const methods::FederatedMethod& method;
  const methods::MethodEntry& entry;
  const lora::Sites& sites;
  const std::vector<std::string>& moe_layers;
  int64_t experts = 0;
  bool reports = true;      ///< secure_aggregation.reports
  bool adds_noise = false;  ///< clients add noise to their changes
};

/// Makes the layout of the round. \param upload  an upload of the method; values and storage of factors do not matter
SummedLayout summed_layout(const SummedRun& run, const methods::ClientUpdate& upload);

/// Returns what a client changed in a factor: its upload minus the broadcast as received, in float32 and the factor's
/// shape. \throws kInternal when the factor was not received
at::Tensor change_of(const SummedLayout::Factor& part, const methods::ClientUpdate& upload,
                     const lora::AdapterState& received);

/// What a client trained in a round.
struct TrainedPart {
  const methods::ClientUpdate& upload;  ///< with the method's own upload
  const lora::AdapterState& received;   ///< the broadcast as received
  const train::LocalReport& report;
};
/// Returns the client's summand. \param rounding  key of stochastic rounding in this round, used with 16 bits
/// \throws kNumeric when a value is not finite
secure::RingVector summand_of(const SummedRun& run, const TrainedPart& trained, const SummedTerms& terms,
                              const crypto::Secret& rounding);

/// Reports of a round, over all clients of a sum.
struct SummedReport {
  int64_t clients = 0, values = 0;  ///< number of summands; number of values of one summand
  int64_t beyond = 0;               ///< number of values of all summands that were cut to the range
  bool told = true;                 ///< false: the sum has no reports, and the fields below are not set
  int64_t tokens = 0, targets = 0;
  double loss_sum = 0;
  double first_loss = 0, last_loss = 0;     ///< means over clients
  double experts_per_token = 0;             ///< mean over tokens
  std::map<std::string, double> metrics{};  ///< means weighted by steps
  TensorMap utilization{};                  ///< sum_c p_c a_ci / n_c by layer, [E] float64
};
/// The sum of a round, read.
struct SummedRound {
  methods::RoundTotals totals;  ///< without `before`
  SummedReport report;
};
/// Reads a sum. \param weights  sum of the weights of the clients in the sum; weighted values are divided by it
/// \param clients  number of clients in the sum
SummedRound read_sum(const SummedLayout& layout, const secure::RingVector& sum, const secure::RingFormat& format,
                     double weights, int64_t clients);

}  // namespace evenkeel::fed
