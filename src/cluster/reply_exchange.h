/// \file  A client's reply on its way from the rank that trained it to rank 0: 64 bytes that say what it is, then its
/// parts one after the other.
#pragma once

#include <array>
#include <cstdint>

#include "cluster/collective.h"
#include "fed/exchange/message.h"

namespace evenkeel::cluster {

/// Eight numbers. What comes from another group, round or model is refused by them.
struct ReplyHeader {
  int64_t layout = 0;  ///< layout_of() the sender
  int64_t client = 0, round = 0, epoch = 0;
  int64_t message = 0, payload = 0, memory = 0, crossed = 0;  ///< bytes of the parts

  /// \throws kData naming what `got` differs in.
  void check(const ReplyHeader& got) const;
};
static_assert(sizeof(ReplyHeader) == 64);

/// A number that models with other sites have not.
int64_t layout_of(const Sites& sites);

/// \param payload  its bytes where it goes along; empty: it stays
void send_reply(Collective& group, int to, ReplyHeader header, const Reply& reply);
/// \param expected  layout, round and epoch
Reply receive_reply(Collective& group, int from, const ReplyHeader& expected);

}  // namespace evenkeel::cluster
