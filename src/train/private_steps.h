/// \file  Options and report of training with differential privacy for single rows (Abadi et al. 2016, "Deep learning
/// with differential privacy"). A step draws each of the client's N rows with probability q = lot / N. Each row's
/// gradient g_i, over all trained values, is scaled to a norm of at most C. The optimiser receives
///
///   g = (sum_i g_i min(1, C / |g_i|) + z C xi) / lot,    xi ~ N(0, 1) per value
///
/// Every step is one release of a sampled Gaussian with noise multiplier z. Whatever is computed from the broadcast and
/// these gradients alone costs no further privacy (post-processing).
#pragma once

#include <cstdint>
#include <optional>

#include "privacy/example_draws.h"

namespace evenkeel::train {

/// Reports private training. Its values depend on the rows only through their number and the noisy gradients.
struct PrivateReport {
  double noise = 0;     ///< z
  double clip = 0;      ///< C
  double sampling = 0;  ///< q
  /// Epsilon of all private steps of the client so far, these included, at `delta`.
  double epsilon = 0, delta = 0;
  /// Norm of the summed gradients divided by the norm of their noise, root mean square over the steps. It is estimated
  /// from the noisy sums, so it is near 0 if the gradients are small beside the noise. nullopt if the client's upload
  /// is hidden in a sum, because it tells the size of the upload.
  std::optional<double> signal{};
  /// True: the keys of the noise come from the run's seed, which others know. The run shows what private training would
  /// learn and protects nobody.
  bool simulated = false;
  /// True: losses, tokens, targets, expert counts, metrics and times are left out of the report.
  bool withheld = false;

  void visit(auto& field) {  // base/format/record.h
    field("noise", noise);
    field("clip", clip);
    field("sampling", sampling);
    field("epsilon", epsilon);
    field("delta", delta);
    field("signal", signal);
    field("simulated", simulated);
    field("withheld", withheld);
  }
};

/// The private steps of one round.
struct PrivateSteps {
  privacy::ExampleDraws draws;
  PrivateReport report;  ///< all but `signal`
  double lot = 0;        ///< expected rows per step
};

}  // namespace evenkeel::train
