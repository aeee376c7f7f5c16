"""The gateway as a member of every purge: admission, policy, fence, receipt, evidence."""
