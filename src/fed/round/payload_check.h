/// \file  Checks payloads from untrusted peers before they are used. Error messages name the sender, the value and what
/// was allowed.
#pragma once

#include <optional>
#include <string>

#include "fed/exchange/message.h"
#include "fed/round/server.h"

namespace evenkeel::fed {

/// Upper bounds on a download, from the agreement between node and server: the config and sizes that both know.
struct DownloadTerms {
  int64_t rank = 0;        ///< r_c: the highest rank of a factor of an adapter
  int64_t delta_rank = 0;  ///< the highest rank of a change of the base; 0: the method never changes it
  int64_t values = 0;      ///< the largest number of values in all tensors together
};
/// Returns the bounds of a task's payload for `client`.
DownloadTerms download_terms(const Server& server, const methods::ClientProfile& client);
/// Returns the bounds of a full sync after `round` rounds.
DownloadTerms news_terms(const Server& server, int64_t round);

/// Checks a download against the model and the terms.
/// \param source  the sender, for error messages
/// \throws kData naming a site or tensor that is unknown to the model, has another shape, has a rank above the terms,
/// or is not finite
void check_download(const lora::Payload& payload, const lora::Sites& sites, const DownloadTerms& terms,
                    const std::string& source);

/// Checks an upload against the expected names, dtypes and shapes.
/// \param expected  the result of expected_upload() (fed/round/update_size.h)
/// \param up_to     the highest rank allowed, for methods that take unequal ranks; nullopt: the expected rank only
/// \param source    the sender, for error messages
/// \throws kData naming the tensor that is missing, unexpected, of another dtype or shape, not finite, above
/// kMostValue (fed/exchange/reported_numbers.h), of another scaling, or a negative count
void check_upload(const lora::Payload& sent, const lora::Payload& expected, std::optional<int64_t> up_to,
                  const std::string& source);

/// Checks the reply to a training task: its report, its upload, and the method's own check of the upload. All numbers
/// have to be in the bounds of fed/exchange/reported_numbers.h.
/// \return how far the upload moved: update_norm() (fed/round/update_size.h)
/// \throws kData, kCheckpoint when the reply is not valid
double check_training_reply(const Server& server, const methods::ServerState& state,
                            const methods::ClientProfile& client, const Reply& reply);

/// Checks the reply to a training task whose upload is hidden: the parts of a summand, and a report that has no measure
/// of the client's rows. \throws kData, kCheckpoint when the reply is not valid
void check_summed_reply(const Server& server, const methods::ServerState& state, const methods::ClientProfile& client,
                        const Reply& reply);

}  // namespace evenkeel::fed
