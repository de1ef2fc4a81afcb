/// \file  Makes a client's summand of a round in which clients add the noise: `[privacy] unit = "client"` with
/// `[secure_aggregation]` (docs/decisions/0115-noise-of-the-clients.md). Part `values` is the change, clipped to
/// integers of a bounded norm, with discrete Gaussian noise, modulo 2^b. Part `counts` is one int64. If the clip bound
/// adapts, it is a noisy indicator of whether the change was within the bound; otherwise it is 0.
#pragma once

#include <span>

#include "fed/config/privacy_section.h"
#include "fed/exchange/message.h"
#include "fed/exchange/summed_upload.h"

namespace evenkeel::fed {

/// The privacy account of one client, and the key of its noise. Threads: several clients may charge at once.
class ClientNoise {
 public:
  virtual ~ClientNoise() = default;
  /// Charges the client's account for a release of its change. When it returns, the noisy change may leave the client.
  /// \param change  the clipped change and its indicator, without noise
  /// \return the key of the noise. Equal changes in a round get equal noise and are charged once
  /// \throws kConfig when the budget does not allow the release
  virtual crypto::Secret charge(const Task& task, const SummedTerms& terms, std::span<const int64_t> change) = 0;
};

/// Returns the weight of a client's change, in [0, 1]. It does not depend on the other clients.
double private_weight(const PrivacySection& privacy, const methods::ClientProfile& client);

/// Returns what a client changed, in all factors of the layout, [values] float32.
at::Tensor change_of(const SummedLayout& layout, const methods::ClientUpdate& upload,
                     const lora::AdapterState& received);

/// The inputs of a noisy summand besides the change.
struct NoisySummand {
  const Task& task;
  const SummedTerms& terms;  ///< REQUIRES terms.noise
  const PrivacySection& privacy;
  const std::string& run;  ///< name of the run, to which the noise is bound
};
/// Returns the client's summand. \throws kNumeric when a value is not finite; as ClientNoise::charge()
secure::RingVector noisy_summand(const SummedLayout& layout, const TrainedPart& trained, const NoisySummand& how,
                                 ClientNoise& noise);

}  // namespace evenkeel::fed
