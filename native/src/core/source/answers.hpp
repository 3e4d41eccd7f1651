// Messages of the source to a client about its request, and how they end it (…/core/source/answers.py).
#pragma once

#include "core/source/job.hpp"
#include "core/source/orphans.hpp"

namespace partc::core {

/// The result of a request that is over, and its frames.
Ending result_of(const Job& job, const Role& role, double now);
/// The line of the log about the end of a request.
Log ended(const Job& job, const messages::AnyMessage& ending, double now);
/// The answer to a request that is not taken; its reason may name tokens, which no log does.
void refusal(const Origin& origin, const messages::Submit& submit, const Error& error, Actions& out);

}  // namespace partc::core
