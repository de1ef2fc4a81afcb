/// \file  Payloads of strangers: what must hold of one before any of it is used. Each says who sent what and what was
/// allowed, and touches nobody else's.
#pragma once

#include <optional>
#include <string>

#include "fed/exchange/message.h"
#include "fed/round/server.h"

namespace evenkeel {

/// What a client agreed to receive.
struct DownloadTerms {
  int64_t rank = 0;        ///< r_c: no factor of an adapter has a higher one
  int64_t delta_rank = 0;  ///< the highest rank of a change of the base; 0: the method makes none
  int64_t values = 0;      ///< in all tensors together
};
DownloadTerms download_terms(const Server& server, const ClientProfile& client);
/// What all clients hold alike after `round` rounds.
DownloadTerms news_terms(const Server& server, int64_t round);

/// \param place  whose payload it is. \throws kData naming site or tensor: one that the model has not, of another
/// shape, a rank above the terms, or a value that is not finite.
void check_download(const Payload& payload, const Sites& sites, const DownloadTerms& terms, const std::string& place);

/// Names, dtypes and shapes of what a client of that profile sends after a round on `download`; factors
/// are without storage (device meta), the values of extras mean nothing. One site is prepared at a time.
Payload expected_upload(const Server& server, const ServerState& state, const ClientProfile& client,
                        const Payload& download);

/// \param expected  expected_upload()
/// \param up_to  of methods whose clients may have any rank up to theirs: that; else ranks are those that are expected
/// \throws kData naming the tensor that is missing, surplus, of another kind or shape, negative where it counts, or not
/// finite.
void check_upload(const Payload& sent, const Payload& expected, std::optional<int64_t> up_to, const std::string& place);

/// Everything that a reply to a task of training says: its report, its payload, and what the method makes of it.
/// \return how far the client moved: update_norm(). \throws kData, kCheckpoint as above, or when that is farther than
/// clients.update_norm allows.
double check_training_reply(const Server& server, const ServerState& state, const ClientProfile& client,
                            const Reply& reply);

/// |sent - received| over all factors that both have in one shape, and |sent| over the others: how far a client moved.
double update_norm(const Payload& sent, const Payload& received);

}  // namespace evenkeel
