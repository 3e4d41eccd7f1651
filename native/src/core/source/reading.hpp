// The request that a client's message asks for, read and checked (…/core/source/reading.py).
#pragma once

#include "core/source/job.hpp"

namespace partc::core {

/// The request that a message asks for. Throws Error: it is more than the plan allows, or not this model's task.
JobPtr read_job(const Origin& origin, const messages::Submit& submit, const Frames& frames, const Role& role,
                double now);

}  // namespace partc::core
