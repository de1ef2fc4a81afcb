/// \file  Sends a client's reply from the rank that trained it to rank 0: a header of 64 bytes, then the parts of the
/// reply.
#pragma once

#include <array>
#include <cstdint>

#include "cluster/collective.h"
#include "fed/exchange/message.h"

namespace evenkeel::cluster {

/// Eight numbers in front of a reply. The receiver uses them to refuse replies of another group, round or model.
struct ReplyHeader {
  int64_t layout = 0;                                       ///< layout_of() of the sender's sites
  int64_t client = 0, round = 0, group = 0;                 ///< id of the client; rounds done; number of the group
  int64_t message = 0, payload = 0, memory = 0, sizes = 0;  ///< lengths of the parts in bytes

  /// Compares group, round and layout. \throws kData naming the first that differs in `got`.
  void check(const ReplyHeader& got) const;
};
static_assert(sizeof(ReplyHeader) == 64);

/// Returns a hash of site names and sizes.
int64_t layout_of(const lora::Sites& sites);

/// Sends a reply to rank `to`. Of a remote upload (fed/exchange/upload.h) only the size is sent. REQUIRES an upload
/// that is not deferred.
/// \param header  layout, round and group of this rank; the function sets the other fields
/// \throws kIo when the transfer fails.
void send_reply(Collective& group, int to, ReplyHeader header, const fed::Reply& reply);
/// Receives a reply of rank `from`. \param expected  layout, round and group that the reply must have
/// \throws kData when the reply does not match `expected` or is malformed, kIo when the transfer fails.
fed::Reply receive_reply(Collective& group, int from, const ReplyHeader& expected);

}  // namespace evenkeel::cluster
